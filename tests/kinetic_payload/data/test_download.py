"""Uploaded `Data` out of a store, and what becomes of damage."""

import errno
import hashlib
import io
import json
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_payload.data.marker import MAX_PACK, Sizes
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import DataError, IntegrityError, ObjectNotFoundError
from kinetic_payload.layout import data_marker, data_pack, data_prefix
from kinetic_payload.progress import Advance
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import MemoryStore

SMALL = Sizes(large=1000, pack=2000, small=100)


class Parallel(MemoryStore):
    concurrency = 8


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return an empty folder to download to."""
    (tmp_path / "x").mkdir()
    return tmp_path / "x"


@pytest.mark.parametrize("kind", ["memory", "parallel", "folder"])
def test_a_folder_and_a_file_come_back(tmp_path: Path, place, dataset, bring, kind: str) -> None:
    store: Store = FolderStore(tmp_path / "store")
    if kind != "folder":
        store = Parallel() if kind == "parallel" else MemoryStore()
    file = tmp_path / "odd näme.bin"
    file.write_bytes(b"\0" * 3_000_000)
    (place / "d").mkdir()  # A mount point that waits empty.

    digest = ensure_data(store, dataset, sizes=SMALL)
    arrived = bring(store, dataset, digest, place / "d")
    assert arrived == place / "d"
    assert tree_of(arrived).digest == digest
    assert stat.S_IMODE((arrived / "sub" / "large ü").stat().st_mode) == 0o755
    for sizes in (SMALL, Sizes()):
        digest = ensure_data(store, file, sizes=sizes)
        assert bring(store, file, digest, place / "f.bin").read_bytes() == file.read_bytes()
        for name in [info.name for info in store.list(data_prefix(digest))]:
            store.delete(name)
    assert sorted(path.name for path in place.iterdir()) == ["d", "f.bin"]


def test_missing_data_is_named_with_the_next_step(tmp_path: Path, bring) -> None:
    store, file, out = MemoryStore(), tmp_path / "weights", tmp_path / "out"
    file.write_bytes(b"1")
    digest = ensure_data(store, file)
    store.delete(data_pack(digest, 0))

    with pytest.raises(DataError, match=r"weights.*any more[\s\S]*uploaded again") as caught:
        bring(MemoryStore(), file, "0" * 64, out)
    assert not isinstance(caught.value, ObjectNotFoundError)
    with pytest.raises(DataError, match="was not uploaded"):
        bring(MemoryStore(), file, None, out)
    with pytest.raises(DataError, match=r"weights.*any more.*packs/00000"):
        bring(store, file, digest, out)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights"]


@pytest.mark.parametrize("name", ["packs/00001.zip", "large/00000"])
def test_damaged_objects_are_refused_by_name_and_sent_again_once_they_are_deleted(
    place, dataset, bring, name: str
) -> None:
    store = Parallel()
    digest = ensure_data(store, dataset, sizes=SMALL)
    harmed = data_prefix(digest) + name
    data = bytearray(store.read(harmed))
    data[120] ^= 1
    store.write(harmed, bytes(data))

    with pytest.raises(IntegrityError, match=rf"dataset.* is not what was uploaded: {harmed}"):
        bring(store, dataset, digest, place / "d")

    assert list(place.iterdir()) == []
    store.delete(harmed)
    ensure_data(store, dataset, sizes=SMALL)
    assert tree_of(bring(store, dataset, digest, place / "d")).digest == digest


def listed_with(**changes: object) -> Callable[..., None]:
    return lambda marker, *_: marker["objects"][0].update(changes)


def moved_file(marker: dict, store: MemoryStore, digest: str) -> None:
    large = marker["objects"][0]
    data = store.read(data_prefix(digest) + large["name"])
    large |= {"path": "elsewhere", "digest": file_sum("elsewhere", data).hex()}


def fewer_objects(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"].pop()


def file_sum(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()


def forged_pack(store: MemoryStore, digest: str, **entries: bytes) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<2H", 0x4E4B, 32) + file_sum(name, data)
            archive.writestr(info, data)
    store.write(data_pack(digest, 0), stream.getvalue())


def another_archive(marker: dict, store: MemoryStore, digest: str) -> None:
    forged_pack(store, digest, evil=b"evil")


def archive_with_a_large_file(marker: dict, store: MemoryStore, digest: str) -> None:
    forged_pack(store, digest, **{"sub/large ü": b"evil"})


def bomb(marker: dict, store: MemoryStore, digest: str) -> None:
    forged_pack(store, digest, bomb=b"0" * 100)
    data = bytearray(store.read(data_pack(digest, 0)))
    at = data.rindex(b"PK\1\2")  # Its size, as the directory declares it.
    data[at + 24 : at + 28] = (MAX_PACK + 1).to_bytes(4, "little")
    store.write(data_pack(digest, 0), bytes(data))


def no_marker(marker: dict, store: MemoryStore, digest: str) -> None:
    marker.clear()


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (listed_with(mode=0o777), "holds the tree"),
        (moved_file, "holds the tree"),
        (fewer_objects, "holds the tree"),
        (listed_with(path="../outside"), r"\.\./outside"),
        (
            listed_with(path="sub/run.sh"),
            "(damaged|two entries of this path)",
        ),  # Whichever is last.
        (listed_with(path="link/x"), "link"),
        (another_archive, "holds the tree"),
        (archive_with_a_large_file, "two entries of this path"),
        (bomb, "bomb"),
        (no_marker, "marker"),
    ],
)
def test_forged_objects_are_refused(place, dataset, bring, forge, message: str) -> None:
    store = Parallel()
    digest = ensure_data(store, dataset, sizes=SMALL)
    marker = json.loads(store.read(data_marker(digest)))
    forge(marker, store, digest)
    store.write(data_marker(digest), json.dumps(marker).encode())

    with pytest.raises(IntegrityError, match=f"dataset.*{message}"):
        bring(store, dataset, digest, place / "d")

    assert list(place.iterdir()) == []


def test_an_error_about_a_full_disk_names_the_data_and_the_place(place, dataset, bring) -> None:
    class Full(MemoryStore):
        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    store = Full()
    digest = ensure_data(store, dataset)
    with pytest.raises(DataError, match=r"dataset.*/x/d: No space left") as caught:
        bring(store, dataset, digest, place / "d")
    assert "Make room" in str(caught.value.hint)
    assert list(place.iterdir()) == []
    assert data_pack(digest, 0) in store.names(), "the object is not to blame"
