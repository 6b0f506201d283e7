from __future__ import annotations

import os
from pathlib import Path

import pytest

from kinetic_payload.files.atomic import NewFile, prepare_beside, rename_into_place


@pytest.mark.parametrize("dest_exists", [True, False])
@pytest.mark.parametrize("made", ["folder", "folder/file"])
def test_a_prepared_path_appears_and_nothing_else_stays(
    tmp_path: Path, dest_exists: bool, made: str
) -> None:
    dest = tmp_path / "above/set"
    if dest_exists and made == "folder":
        dest.mkdir(parents=True)

    with prepare_beside(dest) as folder:
        assert folder.parent == dest.parent
        (folder / "folder").mkdir()
        (folder / "folder/file").write_text("new")
        (folder / "left").write_text("over")
        assert not list(dest.glob("*"))
        rename_into_place(folder / made, dest)

    assert list(dest.parent.iterdir()) == [dest]
    assert (dest / "file" if made == "folder" else dest).read_text() == "new"


def test_after_a_failure_nothing_appears_and_nothing_stays(tmp_path: Path) -> None:
    def prepare(name: str) -> None:
        with prepare_beside(tmp_path / name) as folder:
            (folder / "half").write_text("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare("x" * 255)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_not_replaced(tmp_path: Path) -> None:
    dest = tmp_path / "set"
    dest.mkdir()
    (dest / "old").touch()

    with prepare_beside(dest) as folder:
        (folder / "made").mkdir()
        with pytest.raises(OSError, match="set"):
            rename_into_place(folder / "made", dest)

    assert [path.name for path in dest.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [dest]


def test_a_new_file_appears_only_when_finished_with_the_last_contents(tmp_path: Path) -> None:
    path = tmp_path / "value"
    with NewFile(path) as file:
        file.begin().write(b"some")
    assert os.listdir(tmp_path) == []
    with NewFile(path) as file:
        file.begin().write(b"first and long")
        file.begin().write(b"second")
        assert not path.exists()
        file.finish()
    with NewFile(path) as file:
        file.begin().write(b"third")
        with pytest.raises(FileExistsError):
            file.finish()

    assert path.read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["value"]
