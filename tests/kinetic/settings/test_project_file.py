"""`kinetic.toml`: its keys, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError
from kinetic.settings.project_file import read_project_file
from kinetic.settings.settings import resolve


def test_the_file_comes_before_the_current_profile_and_after_one_that_is_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "profiles.json").write_text(
        '{"current": "dev", "profiles": {"dev": {"zone": "us-east1-b", "cluster": "mine"}}}'
    )
    home = {"KINETIC_HOME": str(tmp_path)}
    file = {"zone": "us-west4", "cluster": "team"}

    found = resolve({}, environ={**home, "KINETIC_CLUSTER": "other"}, file=file)

    assert (found.zone.value, found.zone.source) == ("us-west4", "kinetic.toml")
    assert (found.cluster.value, found.cluster.source) == ("other", "KINETIC_CLUSTER")
    assert resolve({"zone": "us-south1"}, environ=home, file=file).zone.value == "us-south1"
    by_variable = resolve({}, environ={**home, "KINETIC_PROFILE": "dev"}, file=file)
    by_argument = resolve({}, environ=home, profile="dev", file=file)
    assert by_variable.cluster.value == by_argument.cluster.value == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('acelerators = ["v6e-8"]', "unknown key 'acelerators'(?s:.*)Did you mean accelerators"),
        ('accelerators = "v6e-8"', "accelerators = 'v6e-8', and a list of texts"),
        ("users = [1]", r"users = \[1\], and a list of texts"),
        ('standard = "yes"', "standard = 'yes', and true or false"),
        ("zone = 3", "zone = 3, and a text"),
        ("zone = ", "cannot be read"),
    ],
)
def test_what_the_file_cannot_say_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "kinetic.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_project_file(file)
