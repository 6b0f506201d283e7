import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.errors import IntegrityError, ObjectNotFoundError, StorePermissionError
from kinetic_payload.layout import context_object
from kinetic_payload.progress import Advance
from kinetic_payload.project.context import (
    REFRESH_AGE,
    discarded_if_damaged,
    ensure_context,
    fetch_context,
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


def a_context(tmp_path: Path, store: MemoryStore) -> str:
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    ensure_context(store, snapshot)
    return snapshot.digest


def bring(store: MemoryStore, digest: str, tmp_path: Path) -> IntegrityError:
    """Fetch and extract a damaged context, as a runner does; return the error."""
    archive = tmp_path / "context.zip"
    fetch_context(store, digest, archive)
    with (
        pytest.raises(IntegrityError) as caught,
        discarded_if_damaged(store, context_object(digest)),
    ):
        extract_archive(archive, tmp_path / "out", expected_digest=digest)
    return caught.value


def damaged(data: bytes) -> bytes:
    """Change the contents of a file in an archive."""
    at = data.index(b"a.txt") + 5
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [damaged, lambda data: data[:-5], lambda data: b"nonsense"])
def test_a_context_that_is_damaged_in_the_store_is_removed(tmp_path: Path, damage) -> None:
    store = MemoryStore()
    digest = a_context(tmp_path, store)
    store.write(context_object(digest), damage(store.read(context_object(digest))))

    error = bring(store, digest, tmp_path)

    assert "removed there. Submit the job again" in str(error.hint)
    assert store.names() == []


def test_a_context_that_arrives_damaged_stays_in_the_store(tmp_path: Path) -> None:
    class Damaging(MemoryStore):
        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            path.write_bytes(damaged(self.read(name)))

    store = Damaging()
    digest = a_context(tmp_path, store)

    error = bring(store, digest, tmp_path)

    assert "disk" in str(error.hint)
    assert store.names() == [context_object(digest)]


def test_a_damaged_context_that_was_replaced_meanwhile_stays(tmp_path: Path) -> None:
    class Healing(MemoryStore):
        whole = b""

        @contextmanager
        def reader(self, name: str) -> Iterator[BinaryIO]:
            with super().reader(name) as stream:
                self.write(name, self.whole)  # Another client submits.
                yield stream

    store = Healing()
    digest = a_context(tmp_path, store)
    name = context_object(digest)
    store.whole = store.read(name)
    store.write(name, damaged(store.whole))

    bring(store, digest, tmp_path)

    assert store.read(name) == store.whole


@pytest.mark.parametrize(
    ("reads", "deletes", "hint"),
    [
        (IntegrityError("changed on its way"), None, "could not be read again"),
        (OSError(5, "no"), None, "could not be read again"),
        (None, StorePermissionError("no"), "Delete contexts/"),
    ],
)
def test_a_damaged_context_that_cannot_be_read_again_or_deleted_stays(
    tmp_path: Path, reads: Exception | None, deletes: Exception | None, hint: str
) -> None:
    class Refusing(MemoryStore):
        @contextmanager
        def reader(self, name: str) -> Iterator[BinaryIO]:
            if reads is not None:
                raise reads
            with super().reader(name) as stream:
                yield stream

        def delete(self, name: str, *, if_generation: int | None = None) -> bool:
            raise deletes or AssertionError("It was deleted.")

    store = Refusing()
    digest = a_context(tmp_path, store)
    store.write(context_object(digest), damaged(store.read(context_object(digest))))

    error = bring(store, digest, tmp_path)

    assert "damaged" in error.message
    assert hint in str(error.hint)
    assert store.names() == [context_object(digest)]
