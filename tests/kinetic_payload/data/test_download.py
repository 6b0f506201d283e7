"""Uploaded `Data` out of a store, and what becomes of damage."""

import errno
import io
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from kinetic_payload.data.download import download_data
from kinetic_payload.data.marker import MAX_PACK, Sizes
from kinetic_payload.data.references import DataRef
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import (
    DataError,
    IntegrityError,
    ObjectNotFoundError,
    UnsafeArchiveError,
)
from kinetic_payload.layout import data_marker, data_pack, data_prefix
from kinetic_payload.progress import Advance
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_payload.testing import MemoryStore

SMALL = Sizes(large=1000, pack=2000, in_memory=100)


class Parallel(MemoryStore):
    concurrency = 8


def a_tree(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "empty").chmod(0o750)
    for number in range(30):
        (folder / "sub" / f"{number:02d}").write_bytes(b"%d" % number * 100)
    (folder / "sub" / "large ü\n").write_bytes(os.urandom(1500))
    (folder / "sub" / "large ü\n").chmod(0o755)
    (folder / "run.sh").write_text("b")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub/00")
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


@pytest.mark.parametrize("kind", ["memory", "parallel", "folder"])
def test_a_folder_and_a_file_come_back_where_they_are_wanted(tmp_path: Path, kind: str) -> None:
    store: Store = FolderStore(tmp_path / "store")
    if kind != "folder":
        store = Parallel() if kind == "parallel" else MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    file = tmp_path / "odd näme.bin"
    file.write_bytes(b"\0" * 3_000_000)

    digest = ensure_data(store, folder, sizes=SMALL)
    arrived = download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")
    assert arrived == tmp_path / "x" / "d"
    assert tree_of(arrived).digest == digest
    assert stat.S_IMODE((arrived / "sub" / "large ü\n").stat().st_mode) == 0o755
    for sizes in (SMALL, Sizes()):
        digest = ensure_data(store, file, sizes=sizes)
        arrived = download_data(store, ref_to(file, digest), tmp_path / "x" / "f.bin")
        assert arrived.read_bytes() == file.read_bytes()
        for name in [info.name for info in store.list(data_prefix(digest))]:
            store.delete(name)
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["d", "f.bin"]


def test_a_mount_point_that_waits_empty_is_filled(tmp_path: Path) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    (tmp_path / "mount").mkdir()
    download_data(store, ref_to(folder, ensure_data(store, folder)), tmp_path / "mount")
    assert (tmp_path / "mount" / "run.sh").read_text() == "b"


def test_data_that_is_gone_is_named(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    with pytest.raises(DataError, match="weights"):
        download_data(MemoryStore(), ref_to(file, "0" * 64), tmp_path / "out")
    with pytest.raises(DataError, match="was not uploaded"):
        download_data(MemoryStore(), ref_to(file, None), tmp_path / "out")
    store = MemoryStore()
    digest = ensure_data(store, file)
    store.delete(data_pack(digest, 0))
    with pytest.raises(DataError, match=r"weights.*any more.*packs/00000"):
        download_data(store, ref_to(file, digest), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights"]


@pytest.mark.parametrize("name", ["packs/00001.zip", "large/00000"])
def test_changed_bytes_never_appear_and_the_next_upload_heals_them(
    tmp_path: Path, name: str
) -> None:
    store = Parallel()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    harmed = data_prefix(digest) + name
    data = bytearray(store.read(harmed))
    data[120] ^= 1
    store.write(harmed, bytes(data))
    before = set(store.names())

    with pytest.raises(IntegrityError, match=r"dataset.* is not what was uploaded: ") as caught:
        download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")

    assert "Submit the job again" in str(caught.value.hint)
    assert list((tmp_path / "x").iterdir()) == []
    assert before - set(store.names()) == {harmed}
    ensure_data(store, folder, sizes=SMALL)
    arrived = download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")
    assert tree_of(arrived).digest == digest


def swapped_modes(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"][0]["mode"] = 0o777


def moved_file(marker: dict, store: MemoryStore, digest: str) -> None:
    large = marker["objects"][0]
    content = store.read(data_prefix(digest) + large["name"])
    large["path"] = "elsewhere"
    from kinetic_payload.digests import FileHasher

    hasher = FileHasher("elsewhere")
    hasher.update(content)
    large["digest"] = hasher.hexdigest()


def fewer_objects(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"].pop()


def outside(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"][0]["path"] = "../outside"


def over_another(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"][0]["path"] = "run.sh"


def through_a_link(marker: dict, store: MemoryStore, digest: str) -> None:
    marker["objects"][0]["path"] = "link/x"


def other_archive(marker: dict, store: MemoryStore, digest: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("evil", "evil")
    store.write(data_pack(digest, 0), stream.getvalue())


def bomb(marker: dict, store: MemoryStore, digest: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"bomb-{number}", b"\0" * (MAX_PACK // 8))
    store.write(data_pack(digest, 0), stream.getvalue())


def not_a_marker(marker: dict, store: MemoryStore, digest: str) -> None:
    marker.clear()


@pytest.mark.parametrize(
    "forge",
    [
        swapped_modes,
        moved_file,
        fewer_objects,
        outside,
        over_another,
        through_a_link,
        other_archive,
        bomb,
        not_a_marker,
    ],
)
def test_what_somebody_forged_is_refused_removed_and_healed(tmp_path: Path, forge) -> None:  # type: ignore[no-untyped-def]
    store = Parallel()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    marker = json.loads(store.read(data_marker(digest)))
    forge(marker, store, digest)
    store.write(data_marker(digest), json.dumps(marker).encode())
    place = tmp_path / "x"
    place.mkdir()

    with pytest.raises(IntegrityError, match="dataset"):
        download_data(store, ref_to(folder, digest), place / "d")

    assert list(place.iterdir()) == []
    ensure_data(store, folder, sizes=SMALL)
    assert tree_of(download_data(store, ref_to(folder, digest), place / "d")).digest == digest


def test_a_pack_that_says_it_is_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder)
    bomb({}, store, digest)
    with pytest.raises(UnsafeArchiveError, match="bomb-"):
        download_data(store, ref_to(folder, digest), tmp_path / "out")


def test_a_full_disk_is_told_with_the_data_and_the_place(tmp_path: Path) -> None:
    class Full(MemoryStore):
        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    store = Full()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder)
    with pytest.raises(DataError, match=r"dataset.*/x/d: No space left") as caught:
        download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")
    assert "Make room" in str(caught.value.hint)
    assert list((tmp_path / "x").iterdir()) == []
    assert data_pack(digest, 0) in store.names(), "the object is not to blame"


@pytest.mark.parametrize("name", ["packs/00001.zip", "large/00000"])
def test_what_arrives_damaged_stays_in_the_store(tmp_path: Path, name: str) -> None:
    class Short(MemoryStore):
        def download(self, name_: str, path: Path, *, progress: Advance | None = None) -> None:
            super().download(name_, path, progress=progress)
            if name_.endswith(name):
                os.truncate(path, path.stat().st_size - 1)

    store = Short()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    before = store.names()

    with pytest.raises(IntegrityError, match="dataset") as caught:
        download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")

    assert "disk" in str(caught.value.hint)
    assert store.names() == before


def test_a_marker_that_was_replaced_by_a_good_one_stays(tmp_path: Path) -> None:
    class Healing(MemoryStore):
        good = b""

        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            data = super().read(name, start=start, end=end)
            if self.good and name.startswith("data-markers/"):
                self.write(name, self.good)
            return data

    store = Healing()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    good = store.read(data_marker(digest))
    store.write(data_marker(digest), b"nonsense")
    store.good = good
    before = store.names()

    with pytest.raises(IntegrityError, match="dataset"):
        download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")

    assert store.names() == before


def test_a_pack_forged_to_collide_with_a_file_is_removed(tmp_path: Path) -> None:
    store = MemoryStore()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("sub/large ü\n", "evil")
    store.write(data_pack(digest, 0), stream.getvalue())

    with pytest.raises(IntegrityError, match="two entries of this path"):
        download_data(store, ref_to(folder, digest), tmp_path / "x" / "d")

    assert data_pack(digest, 0) not in store.names()


def test_who_may_not_delete_what_is_damaged_is_told_to_have_it_deleted(tmp_path: Path) -> None:
    class ReadOnly(MemoryStore):
        def delete(self, name: str, *, if_generation: int | None = None) -> bool:
            from kinetic_payload.errors import StorePermissionError

            raise StorePermissionError("no")

    store = ReadOnly()
    file = tmp_path / "weights"
    file.write_bytes(b"1" * 500)
    digest = ensure_data(store, file)
    store.write(data_pack(digest, 0), b"nonsense")
    with pytest.raises(IntegrityError) as caught:
        download_data(store, ref_to(file, digest), tmp_path / "out")
    assert f"Delete {data_pack(digest, 0)}" in str(caught.value.hint)


def test_a_download_asks_for_every_object_once(tmp_path: Path) -> None:
    class Counting(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[str] = []

        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            self.asked.append(name)
            super().download(name, path, progress=progress)

        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            self.asked.append(name)
            return super().read(name, start=start, end=end)

        def stat(self, name: str) -> ObjectInfo | None:
            self.asked.append(f"stat {name}")
            return super().stat(name)

    store = Counting()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    wanted = [name for name in store.names() if digest in name]
    store.asked.clear()
    download_data(store, ref_to(folder, digest), tmp_path / "out")
    assert sorted(store.asked) == sorted(wanted)


def test_a_missing_marker_is_no_object_not_found_of_a_store(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    with pytest.raises(DataError) as caught:
        download_data(MemoryStore(), ref_to(file, "0" * 64), tmp_path / "out")
    assert not isinstance(caught.value, ObjectNotFoundError)
    assert "uploaded again" in str(caught.value.hint)
