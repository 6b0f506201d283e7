from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetic.errors import ConfigurationError
from kinetic.settings.profiles import (
    Profile,
    create_profile,
    read_profiles,
    unset_profile,
)


def a_profile(name: str = "dev", **more: str) -> Profile:
    return Profile(name, {"project": "p", "zone": "z", "cluster": "c", **more})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profiles.json"


def test_the_first_profile_becomes_current_and_the_second_does_not(path: Path) -> None:
    path = path.parent / "deep" / path.name
    create_profile(path, a_profile("one"))
    after = create_profile(path, a_profile("two", backend="gke"))

    assert after.current == "one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {
        "current": "one",
        "profiles": {
            "one": {"project": "p", "zone": "z", "cluster": "c"},
            "two": {"project": "p", "zone": "z", "cluster": "c", "backend": "gke"},
        },
    }


@pytest.mark.parametrize("name", ["", "-a", "_a", "a b", "a/b", "ü", "a" * 65, "a\n"])
def test_an_invalid_name_is_refused(path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        create_profile(path, a_profile(name))
    assert create_profile(path, a_profile("a" * 64)).current == "a" * 64


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, "no settings"),
        ({"cluster": "c"}, "no project and no zone"),
        ({"backend": "gke", "project": "p", "zone": "z"}, "no cluster"),
        ({"backend": "local", "project": "p"}, ""),
        ({"kube_context": "k", "cluster": "c"}, ""),
        ({"pod_overrides": {"metadata": {}}}, ""),
    ],
)
def test_a_profile_with_a_part_of_a_cluster_is_refused(
    path: Path, settings: dict[str, Any], refused: str
) -> None:
    profile = Profile("x", settings)

    if refused:
        with pytest.raises(ConfigurationError, match=refused):
            create_profile(path, profile)
    else:
        assert create_profile(path, profile).current == "x"


def test_an_existing_profile_is_not_overwritten(path: Path) -> None:
    create_profile(path, a_profile(zone="before"))

    with pytest.raises(ConfigurationError, match="already"):
        create_profile(path, a_profile(zone="after"))

    assert read_profiles(path).profiles["dev"].settings["zone"] == "before"


def test_keys_of_a_later_version_are_kept(path: Path) -> None:
    path.write_text(
        '{"current": "a", "later": [1], "profiles": {"a": {"project": "p", "colour": "red"}}}'
    )

    create_profile(path, a_profile("b"))
    create_profile(path, a_profile("a"), replace=True)

    document = json.loads(path.read_text())
    assert document["later"] == [1]
    assert document["profiles"]["a"]["colour"] == "red"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "line 1"), (b"[]", "object"), (b'{\n"current": null,\n"profiles": {\n', "line 4"),
        (b'{"profiles": 3}', "'profiles'"), (b'{"profiles": {"a": 3}}', "'a'"),
        (b'{"profiles": {"a": {"zone": 3}}}', "'zone' of profile 'a'"),
        (b'{"profiles": {}, "current": "a"}', "'a'"), (b'{"profiles": {}, "current": 1}', "'current'"),
        (b'{"profiles": {"no way": {}}}', "'no way'"), (b'{"current": null, "\xff": 1}', "utf-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)  # fmt: skip
def test_a_broken_file_is_reported_with_the_place_and_not_overwritten(
    path: Path, text: bytes, what: str
) -> None:
    path.write_bytes(text)

    for action in (read_profiles, lambda p: create_profile(p, a_profile()), unset_profile):
        with pytest.raises(ConfigurationError) as caught:
            action(path)
        assert f"{path} is broken: " in str(caught.value)
        assert what in str(caught.value)

    assert path.read_bytes() == text


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles.json"
    link = tmp_path / "profiles.json"
    link.symlink_to(kept)

    create_profile(link, a_profile())

    assert link.is_symlink()
    assert read_profiles(kept).current == "dev"


def test_profiles_created_by_several_processes_are_all_kept(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kinetic.settings.profiles import *\n"
        "for i in range(5): create_profile(Path(sys.argv[1]),"
        " Profile(f'{sys.argv[2]}{i}', {'backend': 'local'}))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "abc"]

    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(read_profiles(path).profiles) == 15
