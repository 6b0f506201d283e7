from __future__ import annotations

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.submit.capture import capture, check_patterns

MACHINE = [
    *("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SHELL"),
    *("TMPDIR", "TEMP", "TMP", "HOSTNAME", "USER", "LOGNAME", "SSH_AUTH_SOCK"),
    *("KUBERNETES_SERVICE_HOST", "KINETIC_HOME"),
]


def test_names_and_prefixes_capture_the_variables_they_match() -> None:
    environ = {"HF_TOKEN": "t", "HF_HOME": "h", "WANDB": "w", "EMPTY": "", "OTHER": "o"}

    captured = capture(["HF_*", "WANDB", "EMPTY"], environ)

    assert dict(captured.values) == {"HF_TOKEN": "t", "HF_HOME": "h", "WANDB": "w", "EMPTY": ""}
    assert captured.notes() == []


@pytest.mark.parametrize("name", MACHINE)
def test_a_variable_of_the_machine_is_captured_by_its_exact_name_only(name: str) -> None:
    others = {"MINE": "y", "PATH_TO_DATA": "1", "HOMEPAGE": "2"}
    environ = {name: "x", **others}

    assert dict(capture(["*"], environ).values) == others
    assert name not in capture([f"{name[:3]}*"], environ).values
    assert dict(capture([name], environ).values) == {name: "x"}


def test_patterns_that_match_nothing_are_noted() -> None:
    captured = capture(["NOT_THERE", "NOR_*"], {})

    assert captured.missing == ("NOT_THERE",)
    notes = " ".join(captured.notes())
    assert "NOT_THERE" in notes
    assert "NOR_*" in notes


def test_captured_values_are_not_printed() -> None:
    captured = capture(["TOKEN"], {"TOKEN": "s3cret"})

    assert "s3cret" not in f"{captured!r} {captured} {captured.values!r} {captured.values}"
    assert "TOKEN" in repr(captured)


@pytest.mark.parametrize("patterns", ["HF_TOKEN", ["A*B"], ["*A"], [""], ["A=1"], [3], [None], 3])
def test_an_invalid_pattern_is_refused(patterns) -> None:
    with pytest.raises(InvalidRequestError, match="capture_env_vars"):
        check_patterns(patterns)
