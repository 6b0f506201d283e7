from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kinetic_payload.errors import StoreError
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.stores.folder.marking import refuse_foreign_folder
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import parse_location

JOB = "cpu-f-20260101-120000-0a1b2c3"


def check(folder: Path) -> None:
    refuse_foreign_folder(parse_location(str(folder)))


def test_a_folder_with_other_files_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    for name in ("thesis.tex", "photos/a.jpg", "data/2024/a.csv", "logs/today.log", "x", "y"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(StoreError) as caught:
        check(tmp_path)

    assert str(tmp_path) in caught.value.message
    assert "contains other files" in caught.value.message
    assert sorted(tmp_path.rglob("*")) == before


def test_the_command_in_the_hint_accepts_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    folder.mkdir()
    (folder / "thesis.tex").touch()
    with pytest.raises(StoreError, match=r"thesis\.tex") as caught:
        check(folder)

    command = caught.value.hint.partition("anyway: ")[2]
    subprocess.run(command, shell=True, check=True)

    check(folder)
    FolderStore(folder).write(JobObjects(JOB).handle, b"{}")
    assert (folder / "thesis.tex").exists()


def test_an_absent_or_empty_folder_may_become_a_store_which_its_first_write_marks(
    tmp_path: Path,
) -> None:
    check(tmp_path / "absent" / "store")
    check(tmp_path)
    refuse_foreign_folder(parse_location("gs://bucket"))
    assert os.listdir(tmp_path) == []

    FolderStore(tmp_path).write(JobObjects(JOB).handle, b"{}")
    (tmp_path / "README.md").touch()
    check(tmp_path)
    with pytest.raises(StoreError, match="not a folder"):
        check(tmp_path / "README.md")


def test_a_copy_of_a_store_without_its_mark_is_accepted(tmp_path: Path) -> None:
    digest = "ab" * 32
    names = JobObjects(JOB)
    store = FolderStore(tmp_path / "store")
    for name in (
        names.handle, names.claim(1, 0), names.log_chunk(1, 0, 0), f"{names.outputs}any/thing.bin",
        context_object(digest), f"data/{digest}/packs/00000.zip",
    ):  # fmt: skip
        store.write(name, b"")
    copy = tmp_path / "copy"
    subprocess.run(["sh", "-c", f"mkdir {copy} && cp -r {tmp_path}/store/* {copy}"], check=True)

    check(copy)
    (copy / names.prefix / "notes.txt").touch()
    with pytest.raises(StoreError, match=r"notes\.txt"):
        check(copy)
