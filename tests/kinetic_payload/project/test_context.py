import os
import stat
import time
from pathlib import Path

import pytest

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.errors import IntegrityError, ObjectNotFoundError
from kinetic_payload.layout import context_object
from kinetic_payload.project.context import (
    REFRESH_AGE,
    ensure_context,
    fetch_context,
    named_if_damaged,
)
from kinetic_payload.project.snapshot import take_snapshot
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.testing import MemoryStore


def a_tree(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.sh").write_text("b")
    (folder / "sub" / "b.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/b.sh")
    return folder


class NoUpload:
    """A tree that must not be packed."""

    size = 0

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def write(self, stream: object) -> None:
        raise AssertionError("It was packed again.")


def test_a_context_is_uploaded_once_and_downloaded_unchanged(tmp_path: Path) -> None:
    store = MemoryStore()
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    assert ensure_context(store, snapshot)
    assert not ensure_context(store, NoUpload(snapshot.digest))
    fetch_context(store, snapshot.digest, tmp_path / "context.zip")
    extract_archive(tmp_path / "context.zip", tmp_path / "out", expected_digest=snapshot.digest)
    assert (tmp_path / "out" / "link").read_text() == "b"
    assert stat.S_IMODE((tmp_path / "out" / "sub" / "b.sh").stat().st_mode) == 0o755
    with pytest.raises(ObjectNotFoundError):
        fetch_context(store, "0" * 64, tmp_path / "none")


def test_the_age_of_an_old_context_is_reset_when_it_is_used_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    ensure_context(store, snapshot)
    name = context_object(snapshot.digest)
    old = time.time() - REFRESH_AGE - 60
    os.utime(tmp_path / "store" / name, (old, old))

    assert not ensure_context(store, NoUpload(snapshot.digest))

    info = store.stat(name)
    assert info is not None
    assert info.updated > old + 60


def damaged(data: bytes) -> bytes:
    """Change the contents of a file in an archive."""
    at = data.index(b"a.txt") + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [damaged, lambda data: data[:-5], lambda data: b"nonsense"])
def test_a_damaged_context_is_refused_by_its_name(tmp_path: Path, damage) -> None:
    store, archive = MemoryStore(), tmp_path / "context.zip"
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    ensure_context(store, snapshot)
    name = context_object(snapshot.digest)
    store.write(name, damage(store.read(name)))
    fetch_context(store, snapshot.digest, archive)

    with pytest.raises(IntegrityError) as caught, named_if_damaged(store, snapshot.digest):
        extract_archive(archive, tmp_path / "out", expected_digest=snapshot.digest)

    assert f"delete {name} in {store.location}" in str(caught.value.hint)
