"""Local `Data` into a store. What comes out again is looked at by `test_data_download`."""

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kinetic_payload.data.download import download_data
from kinetic_payload.data.marker import Sizes, parse_marker
from kinetic_payload.data.references import DataRef
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import DataError, FutureRecordError, TreeChangedError
from kinetic_payload.layout import data_files_prefix, data_marker, data_prefix
from kinetic_payload.progress import Advance
from kinetic_payload.project.context import REFRESH_AGE
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.project.stat_cache import StatCache
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Check, Location, ObjectInfo
from kinetic_payload.testing import MemoryStore

SMALL = Sizes(large=1000, pack=2000, in_memory=100)
"""Files of a kilobyte are large, and there are several packs."""


class Bucket(MemoryStore):
    """A store that can be mounted, is asked many things at once, and notes what it was asked."""

    concurrency = 8

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.marks: dict[str, str | None] = {}
        self.clock = time.time

    @property
    def location(self) -> Location:
        return Location("gs", "bucket")

    def now(self) -> float:
        return self.clock()

    def mark_folder(self, name: str) -> None:
        self.marks[name] = None

    def mark_link(self, name: str, target: str) -> None:
        self.marks[name] = target
        super().write(name, b"")

    def stat(self, name: str) -> ObjectInfo | None:
        self.asked.append(f"stat {name}")
        return super().stat(name)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        self.asked.append(f"read {name}")
        return super().read(name, start=start, end=end)

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        self.asked.append(f"write {name}")
        return super().write(name, data, if_generation=if_generation)

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        self.asked.append(f"renew {name}")
        return super().renew(name, if_generation=if_generation)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self.asked.append(f"list {prefix}")
        return super().list(prefix, start_after=start_after)

    def _expect(self, name: str, generation: int | None) -> None:
        found = MemoryStore.stat(self, name)
        if generation is not None and generation != (found.generation if found else 0):
            super()._expect(name, -1)


def a_tree(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "empty" / "deep").mkdir(parents=True)
    for number in range(30):
        (folder / f"{number:02d}.txt").write_bytes(b"%d" % number * 100)
    (folder / "large").write_bytes(os.urandom(1500))
    (folder / "sub" / "run.sh").write_text("b")
    (folder / "sub" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("sub")
    return folder


def ref_to(path: Path, digest: str) -> DataRef:
    return DataRef(
        key="d0", kind="local", source=str(path), is_dir=True, name=path.name, digest=digest
    )


def objects(store: MemoryStore, digest: str) -> dict[str, int]:
    prefix = data_prefix(digest)
    listing = MemoryStore.list(store, prefix)
    return {info.name.removeprefix(prefix): info.generation for info in listing}


def marker_of(store: MemoryStore, digest: str, *, mounted: bool = False) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.read(data_marker(digest, mounted=mounted)))
    return found


def test_data_goes_up_in_packs_and_large_files_alone(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    names = [*objects(store, digest)]
    assert names == ["large/00000", "packs/00000.zip", "packs/00001.zip", *names[3:]]
    assert store.read(f"{data_prefix(digest)}large/00000") == (folder / "large").read_bytes()
    marker = parse_marker(store.read(data_marker(digest)), digest=digest)
    assert marker.sizes == {info.name: info.size for info in store.list(data_prefix(digest))}


def test_data_that_is_there_costs_one_read_and_one_list(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    for mounted in (False, True):
        digest = ensure_data(store, folder, mounted=mounted, sizes=SMALL)
        before = objects(store, digest)
        store.asked.clear()
        store.marks.clear()
        assert ensure_data(store, folder, mounted=mounted, sizes=SMALL) == digest
        assert sorted(one.partition(" ")[0] for one in store.asked) == ["list", "read"]
        assert store.marks == {}
        assert objects(store, digest) == before


def test_both_forms_live_side_by_side(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    assert ensure_data(store, folder, mounted=True, sizes=SMALL) == digest
    before = objects(store, digest)
    ensure_data(store, folder, sizes=SMALL)
    ensure_data(store, folder, mounted=True, sizes=SMALL)
    assert objects(store, digest) == before


@pytest.mark.parametrize(
    "harm",
    [
        "pack gone",
        "pack cut",
        "large gone",
        "large cut",
        "marker gone",
        "marker broken",
        "all gone",
    ],
)
def test_what_a_marker_no_longer_vouches_for_is_healed(tmp_path: Path, harm: str) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    before = objects(store, digest)
    what, how = harm.split()
    name = {
        "pack": f"{data_prefix(digest)}packs/00001.zip",
        "large": f"{data_prefix(digest)}large/00000",
        "marker": data_marker(digest),
    }.get(what, "")
    if what == "all":
        for info in list(store.list(data_prefix(digest))):
            store.delete(info.name)
    elif how == "gone":
        store.delete(name)
    else:
        store.write(name, store.read(name)[:-5])

    assert ensure_data(store, folder, sizes=SMALL) == digest

    changed = {
        name for name, generation in objects(store, digest).items() if before[name] != generation
    }
    expected = {"pack": {"packs/00001.zip"}, "large": {"large/00000"}, "marker": set()}
    assert changed == expected.get(what, set(before))
    download_data(store, ref_to(folder, digest), tmp_path / "out")
    store.asked.clear()
    ensure_data(store, folder, sizes=SMALL)
    assert len(store.asked) == 2


def test_a_marker_that_lists_less_than_the_tree_is_not_believed(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    right = marker_of(store, digest)
    store.write(data_marker(digest), json.dumps(right | {"objects": []}).encode())
    ensure_data(store, folder, sizes=SMALL)
    assert marker_of(store, digest)["objects"] == right["objects"]


def test_a_marker_of_a_newer_kinetic_is_left_alone(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder)
    newer = json.dumps(marker_of(store, digest) | {"version": 99}).encode()
    store.write(data_marker(digest), newer)
    with pytest.raises(FutureRecordError):
        ensure_data(store, folder)
    assert store.read(data_marker(digest)) == newer


def test_old_data_that_is_used_again_becomes_young(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    before = marker_of(store, digest)
    count = len(objects(store, digest))
    later = time.time() + REFRESH_AGE + 60
    store.clock = lambda: later
    store.asked.clear()
    assert ensure_data(store, folder, sizes=SMALL) == digest
    done = [one.partition(" ")[0] for one in store.asked]
    assert sorted(done) == sorted(["read", "list", *["renew"] * count, "write"])
    assert done[-1] == "write", "the marker is last"
    after = marker_of(store, digest)
    assert (after["written_at"], before["written_at"]) == (later, before["written_at"])
    assert after["objects"] == before["objects"]


def test_old_data_that_vanishes_while_it_is_renewed_is_sent_again(tmp_path: Path) -> None:
    class Vanishing(Bucket):
        def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
            if name.endswith("packs/00001.zip"):
                self.delete(name)
            return super().renew(name, if_generation=if_generation)

    store = Vanishing()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    store.clock = lambda: time.time() + REFRESH_AGE + 60
    ensure_data(store, folder, sizes=SMALL)
    download_data(store, ref_to(folder, digest), tmp_path / "out")


def test_an_aged_folder_store_is_renewed_file_by_file(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, sizes=SMALL)
    old = time.time() - REFRESH_AGE - 60
    for info in list(store.list("data")):
        os.utime(tmp_path / "store" / info.name, (old, old))
    ensure_data(store, folder, sizes=SMALL)
    assert min(info.updated for info in store.list("data")) > old + 60
    download_data(store, ref_to(folder, digest), tmp_path / "out")


def test_uploads_at_once_agree(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    folder = a_tree(tmp_path / "dataset")
    with ThreadPoolExecutor(6) as pool:
        digests = set(pool.map(lambda _: ensure_data(store, folder, sizes=SMALL), range(12)))
    [digest] = digests
    assert tree_of(download_data(store, ref_to(folder, digest), tmp_path / "out")).digest == digest


def test_an_upload_that_broke_goes_on_where_it_was(tmp_path: Path) -> None:
    class Breaking(Bucket):
        left = 3

        @contextmanager
        def writer(self, name: str, **how: Any) -> Iterator[BinaryIO]:
            with super().writer(name, **how) as stream:
                yield stream
                self.left -= 1
                if self.left < 0:
                    raise OSError("the cable")

    store = Breaking()
    folder = a_tree(tmp_path / "dataset")
    with pytest.raises(OSError, match="the cable"):
        ensure_data(store, folder, sizes=SMALL)
    digest = tree_of(folder).digest
    assert data_marker(digest) not in store.names()
    arrived = objects(store, digest)
    assert arrived
    store.left = 1000
    ensure_data(store, folder, sizes=SMALL)
    after = objects(store, digest)
    assert {name: after[name] for name in arrived} == arrived, "what was there was not sent again"
    download_data(store, ref_to(folder, digest), tmp_path / "out")


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("name", ["00.txt", "large"])
def test_a_file_that_changes_before_it_is_sent_is_named(
    tmp_path: Path, name: str, mounted: bool
) -> None:
    folder = a_tree(tmp_path / "dataset")

    class Meddling(Bucket):
        def read(self, name_: str, *, start: int = 0, end: int | None = None) -> bytes:
            (folder / name).write_bytes(os.urandom((folder / name).stat().st_size))
            return super().read(name_, start=start, end=end)

    store = Meddling()
    with pytest.raises(TreeChangedError, match=name):
        ensure_data(store, folder, mounted=mounted, sizes=SMALL)
    assert not [name for name in store.names() if name.startswith("data-markers")]


def test_a_large_file_that_changes_while_it_is_sent_is_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(2_000_000))

    class Meddling(Bucket):
        def upload(
            self,
            name: str,
            path: Path,
            *,
            if_generation: int | None = None,
            progress: Advance | None = None,
            check: Check | None = None,
        ) -> ObjectInfo:
            content = path.read_bytes()
            # And is as it was when anything looks at it later.
            path.write_bytes(content[::-1])
            try:
                return super().upload(
                    name, path, if_generation=if_generation, progress=progress, check=check
                )
            finally:
                path.write_bytes(content)

    store = Meddling()
    with pytest.raises(TreeChangedError, match="weights"):
        ensure_data(store, file, sizes=SMALL)
    assert store.names() == []


@pytest.mark.usefixtures("reliable")
def test_nobody_is_told_of_what_was_read_before(tmp_path: Path) -> None:
    told: list[tuple[str, int | None]] = []
    moved: list[int] = []
    lock = threading.Lock()

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        told.append((doing, total))
        sums: list[int] = []
        yield sums.append
        with lock:
            moved.append(sum(sums))

    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    time.sleep(0.15)  # noqa: TID251 - until no file could change without its stamp changing
    size = tree_of(folder).size
    for _ in range(2):
        cache = StatCache.of(folder, tmp_path / "cache")
        ensure_data(store, folder, sizes=SMALL, cache=cache, track=track)
    assert told == [("reading the data", size), ("uploading data", size)]
    assert moved == [size, size], "bytes of content, whatever they are packed to"


def test_what_does_not_travel_is_said(tmp_path: Path) -> None:
    folder, said = a_tree(tmp_path / "dataset"), list[str]()
    ensure_data(Bucket(), folder, sizes=SMALL, warn=said.append)
    assert said == []
    for number in range(12):
        (folder / f"gone{number:02d}").symlink_to("/nowhere/at/all")

    ensure_data(Bucket(), folder, sizes=SMALL, warn=said.append)

    [text] = said
    assert f"not everything in {folder} is uploaded: 'gone00' (a link that leads nowhere)" in text
    assert "'gone09'" in text
    assert text.endswith(", and 2 more")


def test_to_be_mounted_every_file_is_an_object(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, mounted=True, sizes=SMALL)
    prefix = data_files_prefix(digest)
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_relative_to(folder / "link")
    }
    arrived = {info.name: store.read(info.name) for info in store.list(prefix)}
    assert arrived == {prefix + name: data for name, data in files.items()} | {f"{prefix}link": b""}
    assert store.marks == {f"{prefix}empty/deep": None, f"{prefix}link": "sub"}
    marker = parse_marker(
        store.read(data_marker(digest, mounted=True)), digest=digest, mounted=True
    )
    assert marker.executables == ("sub/run.sh",)


def test_a_mounted_link_that_is_gone_is_made_again(tmp_path: Path) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    digest = ensure_data(store, folder, mounted=True)
    store.delete(f"{data_files_prefix(digest)}link")
    store.marks.clear()
    ensure_data(store, folder, mounted=True)
    assert store.marks[f"{data_files_prefix(digest)}link"] == "sub"


@pytest.mark.parametrize("mounted", [False, True])
def test_an_empty_folder_is_data_too(tmp_path: Path, mounted: bool) -> None:
    store = Bucket()
    folder = tmp_path / "nothing"
    folder.mkdir()
    digest = ensure_data(store, folder, mounted=mounted)
    if mounted:
        assert store.marks == {f"data/{digest}/files": None}
    else:
        assert [*download_data(store, ref_to(folder, digest), tmp_path / "out").iterdir()] == []
    store.asked.clear()
    ensure_data(store, folder, mounted=mounted)
    assert len(store.asked) == 2


def test_names_that_cannot_be_mounted_are_all_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    store = Bucket()
    folder = a_tree(tmp_path / "dataset")
    (folder / "line\nbreak").write_text("")
    os.close(os.open(os.fsencode(folder) + b"/\x80", os.O_CREAT))
    deep = folder.joinpath(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        ensure_data(store, folder, mounted=True)
    assert "line\\nbreak" in caught.value.message
    assert "\\udc80" in caught.value.message
    assert "'" + "d" * 200 in caught.value.message
    assert store.asked == []
    assert store.marks == {}


def test_what_lies_in_a_folder_cannot_be_mounted(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="only data in a bucket") as caught:
        ensure_data(FolderStore(tmp_path / "store"), a_tree(tmp_path / "dataset"), mounted=True)
    assert "KINETIC_STORE" in str(caught.value.hint)
    assert not (tmp_path / "store").exists()
