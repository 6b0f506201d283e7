import errno
from pathlib import Path

import pytest

from kinetic_payload.errors import IntegrityError
from kinetic_runner.workspace import Workspace, disk_words, import_path


def test_the_workspace_is_readable_for_its_user_only(tmp_path: Path) -> None:
    space = Workspace(tmp_path / "a" / "b")
    for _ in range(2):
        space.make()

    assert space.root.stat().st_mode & 0o777 == 0o700
    assert space.project.is_dir()


@pytest.mark.parametrize("escape", ["..", "../x", "a/../../x", "/etc"])
def test_a_call_cannot_name_a_folder_outside_its_project(tmp_path: Path, escape: str) -> None:
    assert Workspace(tmp_path).within_project("") == tmp_path / "project"
    with pytest.raises(IntegrityError, match="outside"):
        Workspace(tmp_path).within_project(escape)


@pytest.mark.parametrize(
    ("name", "last"), [("set.csv", "set.csv"), ("../../x", "x"), ("..", "d0"), ("", "d0")]
)
def test_data_keeps_its_name_and_stays_in_its_folder(tmp_path: Path, name: str, last: str) -> None:
    assert Workspace(tmp_path).data("d0", name) == tmp_path / "data" / "d0" / last


def test_the_project_comes_first_on_the_import_path_and_once() -> None:
    project = [Path("/w/src"), Path("/w"), Path("/w/src")]

    assert import_path(["/lib", "/w"], project) == ["/w/src", "/w", "/lib"]


def test_only_errors_of_the_disk_are_described_with_what_is_free(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "big.bin"))

    words = disk_words(error, tmp_path / "not" / "there") or ""

    for piece in ("no space is left on the disk", "big.bin", "MiB are free"):
        assert piece in words
    assert disk_words(ValueError("x"), tmp_path) is None
    assert disk_words(FileNotFoundError(errno.ENOENT, "x"), tmp_path) is None
