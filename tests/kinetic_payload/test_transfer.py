import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kinetic_payload.archive import extract_archive
from kinetic_payload.errors import DataError, IntegrityError, ObjectNotFoundError
from kinetic_payload.layout import context_object, data_marker, data_prefix
from kinetic_payload.references import DataRef
from kinetic_payload.snapshot import take_snapshot
from kinetic_payload.store import Store
from kinetic_payload.stores.folder import FolderStore
from kinetic_payload.testing import MemoryStore
from kinetic_payload.transfer import (
    REFRESH_AGE,
    download_data,
    ensure_context,
    ensure_data,
    fetch_context,
)


def a_tree(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.sh").write_text("b")
    (folder / "sub" / "b.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/b.sh")
    return folder


def ref_to(path: Path, digest: str | None) -> DataRef:
    return DataRef(
        key="d0",
        kind="local",
        source=str(path),
        is_dir=path.is_dir(),
        name=path.name,
        digest=digest,
    )


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


@pytest.mark.parametrize("make_store", [MemoryStore, None])
def test_a_folder_and_a_file_come_back_where_they_are_wanted(
    tmp_path: Path, make_store: type[MemoryStore] | None
) -> None:
    store: Store = make_store() if make_store else FolderStore(tmp_path / "store")
    folder = a_tree(tmp_path / "dataset")
    file = tmp_path / "odd näme.bin"
    file.write_bytes(b"\0" * 3_000_000)

    arrived = download_data(store, ref_to(folder, ensure_data(store, folder)), tmp_path / "x" / "d")
    assert arrived == tmp_path / "x" / "d"
    assert (arrived / "sub" / "b.sh").stat().st_mode & 0o777 == 0o755
    assert (arrived / "empty").is_dir()
    arrived = download_data(store, ref_to(file, ensure_data(store, file)), tmp_path / "x" / "f.bin")
    assert arrived.read_bytes() == file.read_bytes()
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["d", "f.bin"]


def test_data_that_is_there_is_not_sent_again(tmp_path: Path) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder)
    before = {info.name: info.generation for info in store.list()}
    assert ensure_data(store, folder) == digest
    assert {info.name: info.generation for info in store.list()} == before


@pytest.mark.parametrize("harm", ["object gone", "object cut", "marker gone", "marker broken"])
def test_what_a_marker_no_longer_vouches_for_is_healed(tmp_path: Path, harm: str) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder)
    [archive] = [info.name for info in store.list(data_prefix(digest))]
    if harm == "object gone":
        store.delete(archive)
    elif harm == "object cut":
        store.write(archive, store.read(archive)[:-5])
    elif harm == "marker gone":
        store.delete(data_marker(digest))
    else:
        store.write(data_marker(digest), b'{"objects": [{"nam')
    assert ensure_data(store, folder) == digest
    download_data(store, ref_to(folder, digest), tmp_path / "out")
    [listed] = json.loads(store.read(data_marker(digest)))["objects"]
    assert listed == {"name": archive, "size": len(store.read(archive))}


def test_uploads_at_once_agree(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    folder = a_tree(tmp_path / "dataset")
    with ThreadPoolExecutor(6) as pool:
        digests = set(pool.map(lambda _: ensure_data(store, folder), range(12)))
    [digest] = digests
    download_data(store, ref_to(folder, digest), tmp_path / "out")


def test_changed_bytes_never_appear(tmp_path: Path) -> None:
    store = MemoryStore()
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(1000))
    digest = ensure_data(store, file)
    [archive] = [info.name for info in store.list(data_prefix(digest))]
    data = bytearray(store.read(archive))
    data[200] ^= 1
    store.write(archive, bytes(data))
    with pytest.raises(IntegrityError):
        download_data(store, ref_to(file, digest), tmp_path / "x" / "weights")
    assert list((tmp_path / "x").iterdir()) == []


def test_data_that_is_gone_is_named(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    with pytest.raises(DataError, match="weights"):
        download_data(MemoryStore(), ref_to(file, "0" * 64), tmp_path / "out")
    with pytest.raises(DataError, match="was not uploaded"):
        download_data(MemoryStore(), ref_to(file, None), tmp_path / "out")


def test_a_mount_point_that_waits_empty_is_filled(tmp_path: Path) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    (tmp_path / "mount").mkdir()
    download_data(store, ref_to(folder, ensure_data(store, folder)), tmp_path / "mount")
    assert (tmp_path / "mount" / "a.txt").read_text() == "a"


def test_a_store_that_breaks_half_way_leaves_no_marker(tmp_path: Path) -> None:
    class Breaking(MemoryStore):
        def write(self, name: str, data: bytes, *, if_generation: int | None = None):  # type: ignore[no-untyped-def]
            if name.startswith("data/"):
                raise OSError("no room")
            return super().write(name, data, if_generation=if_generation)

    store = Breaking()
    with pytest.raises(OSError, match="no room"):
        ensure_data(store, a_tree(tmp_path / "dataset"))
    assert store.names() == []
