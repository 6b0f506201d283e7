"""Local `Data` into a store."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.data.marker import Sizes, parse_marker
from kinetic_payload.data.upload import ensure_data
from kinetic_payload.errors import DataError, FutureRecordError, TreeChangedError
from kinetic_payload.layout import data_files_prefix, data_marker, data_prefix
from kinetic_payload.progress import Advance
from kinetic_payload.project.context import REFRESH_AGE
from kinetic_payload.project.hashing import hash_file
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.project.stat_cache import StatCache
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Location, ObjectInfo, Store
from kinetic_payload.testing import MemoryStore

SMALL = Sizes(large=1000, pack=2000, small=100)
"""Files of a kilobyte are large, and there are several packs."""
Bring = Callable[[Store, Path, str | None, Path], Path]


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


def objects(store: MemoryStore, digest: str) -> dict[str, int]:
    prefix = data_prefix(digest)
    listing = MemoryStore.list(store, prefix)
    return {info.name.removeprefix(prefix): info.generation for info in listing}


def marker_of(store: MemoryStore, digest: str, *, mounted: bool = False) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.read(data_marker(digest, mounted=mounted)))
    return found


def test_data_goes_up_in_packs_and_large_files_alone(dataset: Path) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, sizes=SMALL)
    names = [*objects(store, digest)]
    assert names == ["large/00000", "packs/00000.zip", "packs/00001.zip", *names[3:]]
    large = (dataset / "sub" / "large ü").read_bytes()
    assert store.read(f"{data_prefix(digest)}large/00000") == large
    marker = parse_marker(store.read(data_marker(digest)), digest=digest)
    sizes = {data_prefix(digest) + listed.name: listed.size for listed in marker.objects}
    assert sizes == {info.name: info.size for info in store.list(data_prefix(digest))}


def test_data_in_the_store_costs_one_read_and_one_list_in_either_form(dataset: Path) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, sizes=SMALL)
    assert ensure_data(store, dataset, mounted=True, sizes=SMALL) == digest
    before = objects(store, digest)
    for mounted in (False, True):
        store.asked.clear()
        store.marks.clear()
        assert ensure_data(store, dataset, mounted=mounted, sizes=SMALL) == digest
        assert sorted(one.partition(" ")[0] for one in store.asked) == ["list", "read"]
        assert store.marks == {}
        assert objects(store, digest) == before


@pytest.mark.parametrize(
    ("harmed", "expected"),
    [
        ("packs/00001.zip gone", {"packs/00001.zip"}),
        ("large/00000 gone", {"large/00000"}),
        ("marker gone", set()),
        ("marker cut", set()),
        ("all gone", None),
    ],
)
def test_objects_that_are_missing_are_sent_again(
    tmp_path: Path, dataset: Path, bring: Bring, harmed: str, expected: set[str] | None
) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, sizes=SMALL)
    before = objects(store, digest)
    what, how = harmed.split()
    name = data_marker(digest) if what == "marker" else data_prefix(digest) + what
    for harmed_name in map(data_prefix(digest).__add__, before) if what == "all" else [name]:
        if how == "gone":
            store.delete(harmed_name)
        else:
            store.write(harmed_name, store.read(harmed_name)[:-5])

    assert ensure_data(store, dataset, sizes=SMALL) == digest

    after = objects(store, digest)
    changed = {name for name in after if before[name] != after[name]}
    assert changed == (set(before) if expected is None else expected)
    bring(store, dataset, digest, tmp_path / "out")
    store.asked.clear()
    ensure_data(store, dataset, sizes=SMALL)
    assert len(store.asked) == 2


def test_a_marker_that_lists_less_is_replaced_and_that_of_a_newer_kinetic_is_not(
    dataset: Path,
) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, sizes=SMALL)
    right = marker_of(store, digest)
    store.write(data_marker(digest), json.dumps(right | {"objects": []}).encode())
    ensure_data(store, dataset, sizes=SMALL)
    assert marker_of(store, digest)["objects"] == right["objects"]

    newer = json.dumps(right | {"version": 99}).encode()
    store.write(data_marker(digest), newer)
    with pytest.raises(FutureRecordError):
        ensure_data(store, dataset, sizes=SMALL)
    assert store.read(data_marker(digest)) == newer


def test_the_age_of_old_data_is_reset_when_it_is_used_again(dataset: Path) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, sizes=SMALL)
    before = marker_of(store, digest)
    count = len(objects(store, digest))
    later = time.time() + REFRESH_AGE + 60
    store.clock = lambda: later
    store.asked.clear()
    assert ensure_data(store, dataset, sizes=SMALL) == digest
    done = [one.partition(" ")[0] for one in store.asked]
    assert sorted(done) == sorted(["read", "list", *["renew"] * count, "write"])
    assert done[-1] == "write", "the marker is last"
    after = marker_of(store, digest)
    assert (after["written_at"], before["written_at"]) == (later, before["written_at"])
    assert after["objects"] == before["objects"]


def test_old_data_that_is_deleted_while_it_is_renewed_is_sent_again(
    tmp_path: Path, dataset: Path, bring: Bring
) -> None:
    class Vanishing(Bucket):
        def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
            if name.endswith("packs/00001.zip"):
                self.delete(name)
            return super().renew(name, if_generation=if_generation)

    store = Vanishing()
    digest = ensure_data(store, dataset, sizes=SMALL)
    store.clock = lambda: time.time() + REFRESH_AGE + 60
    ensure_data(store, dataset, sizes=SMALL)
    bring(store, dataset, digest, tmp_path / "out")


def test_uploads_at_once_agree(tmp_path: Path, dataset: Path, bring: Bring) -> None:
    store = FolderStore(tmp_path / "store")
    with ThreadPoolExecutor(6) as pool:
        digests = set(pool.map(lambda _: ensure_data(store, dataset, sizes=SMALL), range(12)))
    [digest] = digests
    assert tree_of(bring(store, dataset, digest, tmp_path / "out")).digest == digest


@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("name", ["00.txt", "sub/large ü"])
def test_a_file_that_changes_before_it_is_sent_is_named(
    dataset: Path, name: str, mounted: bool
) -> None:
    class Meddling(Bucket):
        def read(self, name_: str, *, start: int = 0, end: int | None = None) -> bytes:
            file = dataset / name
            file.unlink() if mounted else file.write_bytes(os.urandom(file.stat().st_size))
            return super().read(name_, start=start, end=end)

    store = Meddling()
    with pytest.raises(TreeChangedError, match=name):
        ensure_data(store, dataset, mounted=mounted, sizes=SMALL)
    assert not [name for name in store.names() if name.startswith("data-markers")]


def test_a_large_file_that_changes_while_it_is_sent_is_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(os.urandom(2_000_000))

    class Meddling(Bucket):
        def upload(self, name: str, path: Path, **options: Any) -> ObjectInfo:
            content = path.read_bytes()
            # And is as it was when anything looks at it later.
            path.write_bytes(content[::-1])
            try:
                return super().upload(name, path, **options)
            finally:
                path.write_bytes(content)

    store = Meddling()
    with pytest.raises(TreeChangedError, match="weights"):
        ensure_data(store, file, sizes=SMALL)
    assert store.names() == []


def test_progress_counts_each_byte_once_as_read_and_as_uploaded(
    tmp_path: Path, dataset: Path
) -> None:
    reported: list[tuple[str, int | None]] = []
    moved: list[int] = []
    lock = threading.Lock()

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        reported.append((doing, total))
        sums: list[int] = []
        yield sums.append
        with lock:
            moved.append(sum(sums))

    store = Bucket()
    tree, cache = tree_of(dataset), StatCache(tmp_path / "cache")
    for entry in tree.entries:
        if entry.kind == "file":
            hashed = hash_file(dataset / entry.path, entry.path)
            cache.put(hashed._replace(lasting=True))  # As if it were older.
    cache.save()
    size = tree.size
    for known in (None, StatCache(tmp_path / "cache")):
        ensure_data(store, dataset, sizes=SMALL, cache=known, track=track)
    assert reported == [("reading the data", size), ("uploading data", size)]
    assert moved == [size, size], "bytes of content, whatever they are packed to"


def test_to_be_mounted_every_file_is_an_object(dataset: Path) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, mounted=True, sizes=SMALL)
    prefix = data_files_prefix(digest)
    files = {
        str(path.relative_to(dataset)): path.read_bytes()
        for path in dataset.rglob("*")
        if path.is_file() and not path.is_relative_to(dataset / "link")
    }
    arrived = {info.name: store.read(info.name) for info in store.list(prefix)}
    assert arrived == {prefix + name: data for name, data in files.items()} | {f"{prefix}link": b""}
    assert store.marks == {f"{prefix}empty/deep": None, f"{prefix}link": "sub"}
    marker = parse_marker(
        store.read(data_marker(digest, mounted=True)), digest=digest, mounted=True
    )
    assert marker.executables == ("sub/large ü", "sub/run.sh")


def test_a_mounted_link_that_is_missing_is_written_again(dataset: Path) -> None:
    store = Bucket()
    digest = ensure_data(store, dataset, mounted=True)
    store.delete(f"{data_files_prefix(digest)}link")
    store.marks.clear()
    ensure_data(store, dataset, mounted=True)
    assert store.marks[f"{data_files_prefix(digest)}link"] == "sub"


@pytest.mark.parametrize("mounted", [False, True])
def test_an_empty_folder_is_data_too(tmp_path: Path, bring: Bring, mounted: bool) -> None:
    store, folder = Bucket(), tmp_path / "nothing"
    folder.mkdir()
    digest = ensure_data(store, folder, mounted=mounted)
    if mounted:
        assert store.marks == {f"data/{digest}/files": None}
    else:
        assert [*bring(store, folder, digest, tmp_path / "out").iterdir()] == []
    store.asked.clear()
    ensure_data(store, folder, mounted=mounted)
    assert len(store.asked) == 2


def test_names_that_cannot_be_mounted_are_all_refused_before_anything_is_sent(
    dataset: Path,
) -> None:
    store = Bucket()
    (dataset / "line\nbreak").write_text("")
    os.close(os.open(os.fsencode(dataset) + b"/\x80", os.O_CREAT))
    deep = dataset.joinpath(*["d" * 200] * 5)
    deep.mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        ensure_data(store, dataset, mounted=True)
    assert "line\\nbreak" in caught.value.message
    assert "\\udc80" in caught.value.message
    assert "'" + "d" * 200 in caught.value.message
    assert store.asked == []
    assert store.marks == {}


def test_data_in_a_folder_store_cannot_be_mounted(tmp_path: Path, dataset: Path) -> None:
    with pytest.raises(DataError, match="only data in a bucket") as caught:
        ensure_data(FolderStore(tmp_path / "store"), dataset, mounted=True)
    assert "KINETIC_STORE" in str(caught.value.hint)
    assert not (tmp_path / "store").exists()
