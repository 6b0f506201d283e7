"""`StoreContract`: the tests that every store passes unchanged."""

# The names of the tests take the place of docstrings.
# ruff: noqa: D102

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from kinetic_payload.errors import (
    InvalidRequestError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ABSENT, Store

ODD_NAMES = (
    "j/ä ö/日本.txt",
    "j/100%/50%25/%00/%2E/%/%~",
    "j/with space/tab\ttab",
    "j/back\\slash:colon*?",
    ".Kinetic-Store.lock",
    "j/.hidden/~tilde",
    "j/" + "long" * 60,
    "j/" + "%00" * 50 + "/" + "ü" * 120,
)
"""Valid names that are difficult for a file system, a shell or a careless prefix."""


class StoreContract:
    """Tests of a store. Subclass it and define `make_store`; pytest runs the tests."""

    def make_store(self, folder: Path) -> Store:
        """Return an empty store to test; *folder* is empty and may be used for it."""
        raise NotImplementedError

    def test_what_was_written_is_read_and_known(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        before = time.time()
        info = store.write("a/b.json", b"hello")
        assert (info.name, info.size) == ("a/b.json", 5)
        assert info.generation > 0
        assert before - 5 < info.updated < time.time() + 5
        assert store.stat("a/b.json") == info
        assert store.read("a/b.json") == b"hello"
        assert list(store.list()) == [info]

    def test_a_limited_store_has_the_same_objects(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        limited = store.limited(OutageLimit(10))
        info = limited.write("a", b"hello")
        assert store.stat("a") == limited.limited(OutageLimit(5)).stat("a") == info
        assert limited.location == store.location

    def test_an_object_may_be_empty(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        assert store.write("empty", b"").size == 0
        assert store.read("empty") == b""

    def test_what_is_not_there_is_said_to_be_missing(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.write("a/b", b"")
        for name in ("nothing", "a", "a/b/c"):
            assert store.stat(name) is None
            with _raises(ObjectNotFoundError):
                store.read(name)
            with _raises(ObjectNotFoundError), store.reader(name):
                pass
            with _raises(ObjectNotFoundError):
                store.download(name, tmp_path / "target")
            assert not store.delete(name)
        assert not (tmp_path / "target").exists()
        assert not [*store.list("x/"), *store.folders("x/")]

    def test_ranges_end_where_the_object_ends(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.write("o", b"0123456789")
        assert store.read("o", start=3, end=6) == b"345"
        assert store.read("o", start=7) == b"789"
        assert store.read("o", end=2) == b"01"
        assert store.read("o", start=8, end=100) == b"89"
        assert store.read("o", start=10) == store.read("o", start=11, end=20) == b""
        assert store.read("o", start=5, end=5) == b""

    def test_create_only_leaves_the_first(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.write("o", b"first", if_generation=ABSENT)
        with _raises(PreconditionFailedError):
            store.write("o", b"second", if_generation=ABSENT)
        with _raises(PreconditionFailedError), store.writer("o", if_generation=ABSENT) as stream:
            stream.write(b"third")
        assert store.read("o") == b"first"

    def test_generations_grow_also_after_a_deletion(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        seen = [0]
        for turn in range(30):
            seen.append(store.write("o", b"x").generation)
            if turn % 3 == 0:
                assert store.delete("o")
        assert seen == sorted(set(seen))

    def test_compare_and_swap_refuses_what_is_no_longer_so(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        first = store.write("o", b"1").generation
        second = store.write("o", b"2", if_generation=first).generation
        for stale in (first, second + 1, ABSENT):
            with _raises(PreconditionFailedError):
                store.write("o", b"3", if_generation=stale)
            with _raises(PreconditionFailedError):
                store.delete("o", if_generation=stale)
        assert store.read("o") == b"2"
        assert store.delete("o", if_generation=second)
        with _raises(PreconditionFailedError):
            store.write("o", b"3", if_generation=second)
        with _raises(PreconditionFailedError):
            store.delete("o", if_generation=second)

    def test_a_stream_appears_whole_or_not_at_all(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with store.writer("o") as stream:
            stream.write(b"....tail")
            assert [*store.list()] == []
            stream.seek(0)
            stream.write(b"head")
        assert store.read("o") == b"headtail"
        with _raises(RuntimeError), store.writer("o") as stream:
            stream.write(b"half")
            _fail()
        assert store.read("o") == b"headtail"
        assert [info.name for info in store.list()] == ["o"]

    def test_the_precondition_of_a_stream_is_checked_at_its_end(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        with _raises(PreconditionFailedError), store.writer("o", if_generation=ABSENT) as stream:
            stream.write(b"late")
            store.write("o", b"early")
        assert store.read("o") == b"early"

    def test_a_reader_keeps_its_generation(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        old = b"a" * 3_000_000
        store.write("o", old)
        with store.reader("o") as stream:
            begin = stream.read(10)
            store.write("o", b"b" * 3_000_000)
            store.delete("o")
            assert begin + stream.read() == old

    def test_files_go_up_and_come_down(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path / "store")
        content = bytes(range(256)) * 9000
        (tmp_path / "source").write_bytes(content)
        info = store.upload("a/file", tmp_path / "source", if_generation=ABSENT)
        assert info.size == len(content)
        target = tmp_path / ("\u65e5" * 85)  # As long as a name can be, in bytes.
        target.write_bytes(b"old")
        store.download("a/file", target)
        assert target.read_bytes() == content
        with _raises(PreconditionFailedError):
            store.upload("a/file", tmp_path / "source", if_generation=ABSENT)

    def test_moved_bytes_are_told(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path / "store")
        (tmp_path / "source").write_bytes(b"x" * 3_000_000)
        moved: list[int] = []
        store.upload("o", tmp_path / "source", progress=moved.append)
        assert sum(moved) == 3_000_000
        store.download("o", tmp_path / "target", progress=moved.append)
        assert sum(moved) == 6_000_000
        with store.writer("p", progress=moved.append) as stream:
            stream.write(b"x" * 2_000_000)
            assert sum(moved) == 6_000_000
        assert sum(moved) == 8_000_000

    def test_a_renewed_object_is_young_and_unchanged(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        old = store.write("o", b"content")
        renewed = store.renew("o", if_generation=old.generation)
        assert renewed is not None
        assert renewed == store.stat("o")
        assert renewed.updated >= old.updated
        assert renewed.generation > old.generation
        assert store.read("o") == b"content"
        with _raises(PreconditionFailedError):
            store.renew("o", if_generation=old.generation)
        assert store.renew("nothing", if_generation=old.generation) is None

    def test_the_clock_of_a_store_is_that_of_its_objects(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        before = store.now()
        updated = store.write("o", b"").updated
        assert before - 5 < updated < store.now() + 5

    def test_lists_follow_the_full_name(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        names = ["a-b", "a/0", "a/b/c", "a/b-c", "a.b/x", "a0", "a1/y", "b", "C"]
        for name in reversed(names):
            store.write(name, b"")
        ordered = sorted(names)
        assert [info.name for info in store.list()] == ordered
        assert [info.name for info in store.list("a/")] == ["a/0", "a/b-c", "a/b/c"]
        assert [info.name for info in store.list("a/b")] == ["a/b-c", "a/b/c"]
        assert [info.name for info in store.list("a/0")] == ["a/0"]
        for after in (*ordered, "a", "a/", "a/b", "a/zzz", ""):
            rest = [info.name for info in store.list(start_after=after)]
            assert rest == [name for name in ordered if name > after]
        assert list(store.folders()) == ["a.b/", "a/", "a1/"]
        assert list(store.folders("a/")) == ["a/b/"]
        assert list(store.folders("a")) == ["a.b/", "a/", "a1/"]

    def test_records_are_found_beside_everything_else(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        data = '{"text": "ä\u2028 100%25 \\\\n\\t"}\n'.encode()
        names = [
            "a-1/handle.json",
            "a-1/outcome.json",
            "a/outcome.json",
            "data-1/handle.json",
            "z/handle.json",
        ]
        for name in reversed(names):
            store.write(name, b"replaced")
            written = store.write(name, data)
            store.renew(name, if_generation=written.generation)
        for name in (
            "handle.json", "a-1/lease.json", "a-1/handle.json~", "a-1/attempts/1/handle.json",
            "a-1/xoutcome.json", "logs/a-1/handle.json", "data/f/files/handle.json", "outputs/a-1/x",
        ):  # fmt: skip
            store.write(name, data)

        for prefix, own in (("", names), ("logs/", ["logs/a-1/handle.json"])):
            found = list(store.records(prefix))

            assert [info for info, _ in found] == [store.stat(name) for name in own]
            assert all(content in (None, data) for _, content in found)
        assert all(store.read(name) == data for name in names)

    def test_deleted_folders_are_gone(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.write("job/attempts/1/x", b"")
        assert store.delete("job/attempts/1/x")
        assert not [*store.list(), *store.folders()]
        store.write("job/attempts/1/x", b"")
        assert list(store.folders()) == ["job/"]

    def test_odd_names_stay_themselves(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for name in ODD_NAMES:
            store.write(name, name.encode())
        assert [info.name for info in store.list()] == sorted(ODD_NAMES)
        for name in ODD_NAMES:
            assert store.read(name).decode() == name
            assert [info.name for info in store.list(name)] == [name]
            assert store.delete(name)
        assert list(store.list()) == []

    def test_names_that_are_none_are_refused(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        for name in (
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "\ud800",
            "a\nb",
            "a\0b",
            ".Kinetic-Store/x",
            "x" * 1025,
        ):
            for act in (store.stat, store.read, store.delete):
                with _raises(InvalidRequestError):
                    act(name)
            with _raises(InvalidRequestError):
                store.write(name, b"")
        assert list(store.list("../")) == list(store.list("/")) == []

    def test_of_many_threads_one_creates(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)

        def create(number: int) -> bool:
            try:
                store.write("o", b"%d" % number, if_generation=ABSENT)
            except PreconditionFailedError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(32))) == 1

    def test_threads_lose_no_update(self, tmp_path: Path) -> None:
        store = self.make_store(tmp_path)
        store.write("o", b"0")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: increment(store, "o"), range(40)))
        assert store.read("o") == b"40"


def increment(store: Store, name: str) -> None:
    """Add one to the number in *name*, by compare and swap."""
    while True:
        info = store.stat(name)
        value = int(store.read(name)) if info else 0
        found = info.generation if info else ABSENT
        try:
            store.write(name, b"%d" % (value + 1), if_generation=found)
        except PreconditionFailedError:
            continue
        return


@contextmanager
def _raises(kind: type[BaseException]) -> Iterator[None]:
    # The same as pytest's `raises`. Users of `MemoryStore` alone need not install pytest.
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected.")


def _fail() -> None:
    raise RuntimeError
