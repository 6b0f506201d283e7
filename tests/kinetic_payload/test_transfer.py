import os
import time
from pathlib import Path

import pytest

from kinetic_payload.archive import extract_archive
from kinetic_payload.errors import ObjectNotFoundError
from kinetic_payload.layout import context_object
from kinetic_payload.snapshot import take_snapshot
from kinetic_payload.stores.folder import FolderStore
from kinetic_payload.testing import MemoryStore
from kinetic_payload.transfer import REFRESH_AGE, ensure_context, fetch_context


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


def test_a_context_goes_up_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    store = MemoryStore()
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    assert ensure_context(store, snapshot)
    assert not ensure_context(store, NoUpload(snapshot.digest))
    fetch_context(store, snapshot.digest, tmp_path / "context.zip")
    extract_archive(tmp_path / "context.zip", tmp_path / "out", expected_digest=snapshot.digest)
    assert (tmp_path / "out" / "link").read_text() == "b"
    with pytest.raises(ObjectNotFoundError):
        fetch_context(store, "0" * 64, tmp_path / "none")


def test_an_old_context_that_is_used_again_becomes_young(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    snapshot = take_snapshot(a_tree(tmp_path / "project"))
    ensure_context(store, snapshot)
    name = context_object(snapshot.digest)
    old = time.time() - REFRESH_AGE - 60
    os.utime(tmp_path / "store" / name, (old, old))
    assert not ensure_context(store, snapshot), "no bytes are sent for that"
    info = store.stat(name)
    assert info is not None
    assert info.updated > old + 60
    assert not ensure_context(store, NoUpload(snapshot.digest))
