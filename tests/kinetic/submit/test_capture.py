from __future__ import annotations

import pytest

from kinetic.errors import InvalidRequestError
from kinetic.submit.capture import capture, check_patterns

MACHINE = [
    *("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "SHELL"),
    *("TMPDIR", "TEMP", "TMP", "HOSTNAME", "USER", "LOGNAME", "SSH_AUTH_SOCK"),
    *("KUBERNETES_SERVICE_HOST", "KINETIC_HOME"),
]


def test_exact_names_and_prefixes_take_what_they_name() -> None:
    environ = {"HF_TOKEN": "t", "HF_HOME": "h", "WANDB": "w", "EMPTY": "", "OTHER": "o"}

    captured = capture(["HF_*", "WANDB", "EMPTY"], environ)

    assert dict(captured.values) == {"HF_TOKEN": "t", "HF_HOME": "h", "WANDB": "w", "EMPTY": ""}
    assert captured.notes() == []


@pytest.mark.parametrize("name", MACHINE)
def test_a_pattern_never_takes_what_describes_the_machine_and_an_exact_name_does(name: str) -> None:
    environ = {name: "x", "MINE": "y"}

    assert dict(capture(["*"], environ).values) == {"MINE": "y"}
    assert dict(capture([f"{name[:3]}*"], environ).values) == {}
    assert dict(capture([name], environ).values) == {name: "x"}


def test_a_name_that_only_begins_like_one_of_the_machine_is_taken() -> None:
    assert set(capture(["*"], {"PATH_TO_DATA": "1", "HOMEPAGE": "2"}).values) == {
        "PATH_TO_DATA",
        "HOMEPAGE",
    }


def test_what_is_missing_is_said_by_name() -> None:
    captured = capture(["NOT_THERE", "NOR_*"], {})

    assert captured.missing == ("NOT_THERE",)
    notes = " ".join(captured.notes())
    assert "NOT_THERE" in notes
    assert "NOR_*" in notes


def test_values_are_never_shown() -> None:
    captured = capture(["TOKEN"], {"TOKEN": "s3cret"})

    assert "s3cret" not in f"{captured!r} {captured} {captured.values!r} {captured.values}"
    assert "TOKEN" in repr(captured)


@pytest.mark.parametrize("patterns", ["HF_TOKEN", ["A*B"], ["*A"], [""], ["A=1"], [3], [None], 3])
def test_what_is_neither_a_name_nor_a_prefix_is_refused(patterns) -> None:
    with pytest.raises(InvalidRequestError, match="capture_env_vars"):
        check_patterns(patterns)
