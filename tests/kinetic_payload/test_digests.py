from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kinetic_payload.digests import (
    FileHasher,
    TreeEntry,
    file_digest,
    tree_digest,
)
from kinetic_payload.errors import DataError
from kinetic_payload.project import hashing
from kinetic_payload.project.file_times import FileTimes
from kinetic_payload.project.hashing import content_hash, hash_file, hash_files
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.project.stat_cache import StatCache


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_files_digest_covers_its_name_and_its_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"contents")

    assert file_digest(tmp_path / "a", "src/ä") == sha("src/ä".encode() + b"\0contents")


def test_a_file_fed_in_pieces_has_the_digest_of_the_whole(tmp_path: Path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "a").write_bytes(data)
    hasher = FileHasher("name\udcff")
    for start in range(0, len(data), 1000_003):
        hasher.update(data[start : start + 1000_003])

    assert hasher.hexdigest() == file_digest(tmp_path / "a", "name\udcff")


def test_many_files_are_hashed_and_the_unreadable_ones_do_not_stop_the_others(
    tmp_path: Path,
) -> None:
    names = [f"f{number}" for number in range(300)]
    for name in names:
        (tmp_path / name).write_text(name)
    failed = {}

    found = list(
        hash_files(
            [(str(tmp_path / name), name, 4) for name in [*names, "gone"]],
            failed=failed.__setitem__,
        )
    )

    assert {item.relpath: item.digest for item in found} == {
        name: sha(f"{name}\0{name}".encode()) for name in names
    }
    assert list(failed) == ["gone"]


def test_whoever_is_interrupted_does_not_wait_for_the_files_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"f{number}" for number in range(8)]
    for name in names:
        (tmp_path / name).write_bytes(bytes(5 << 20))
    began: list[int] = []
    first = threading.Lock()
    noticed = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            noticed.set()
            super().shutdown(wait, cancel_futures=cancel_futures)

    def advance(size: int) -> None:
        began.append(size)
        if first.acquire(blocking=False):
            raise KeyboardInterrupt
        assert noticed.wait(60)

    monkeypatch.setattr(hashing, "cores", lambda: 2)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        list(
            hash_files(
                [(str(tmp_path / n), n, 5 << 20) for n in names], failed=print, advance=advance
            )
        )

    assert (
        len(began) <= 3
    )  # What was interrupted, and what two threads were at when it was noticed.


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that nobody can read")
@pytest.mark.usefixtures("reliable")
def test_what_was_hashed_before_one_file_failed_is_not_hashed_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("1")
    os.utime(data / "x", (1, 1))
    while not hash_file(data / "x", "x", times=FileTimes()).lasting:
        pass  # Until it cannot change without its stamp changing.
    (data / "memory").symlink_to("/proc/self/mem")

    for read in (lambda cache: content_hash(data, cache), lambda cache: tree_of(data, cache)):
        with pytest.raises(DataError, match=r"1 of the files of the data .*\n.*'memory'"):
            read(StatCache(tmp_path / "cache"))
        assert StatCache(tmp_path / "cache").get("x", (data / "x").stat()) is not None
        (tmp_path / "cache").unlink()


def test_content_hash_follows_the_documented_recipe(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("1")
    (tmp_path / "a.txt").write_text("2")
    (tmp_path / "c").write_text("3")
    parts = [b"a.txt\0" + b"2", b"c\0" + b"3", b"b/x\0" + b"1"]

    expected = sha(b"dir:" + b"".join(hashlib.sha256(part).digest() for part in parts))

    assert content_hash(tmp_path) == expected


def test_a_file_and_a_folder_with_only_that_file_differ(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")

    assert content_hash(tmp_path / "x") == sha(b"file:" + hashlib.sha256(b"x\0" + b"1").digest())
    assert content_hash(tmp_path) != content_hash(tmp_path / "x")


def test_content_hash_reads_linked_files_and_does_not_enter_linked_folders(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("1")
    data = tmp_path / "data"
    data.mkdir()
    (data / "link").symlink_to(outside / "f")
    before = content_hash(data)
    (data / "circle").symlink_to(data)
    (data / "folder").symlink_to(outside)
    (data / "dangling").symlink_to("nowhere")
    os.mkfifo(data / "pipe")

    assert content_hash(data) == before
    (outside / "f").write_text("2")
    assert content_hash(data) != before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_every_unreadable_file_of_data_is_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).touch(mode=0o000)

    with pytest.raises(DataError, match=r"(?s)'one'.*'two'"):
        content_hash(tmp_path)


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        content_hash(tmp_path / "missing")


def test_content_hash_takes_unchanged_files_from_the_cache(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    file = data / "x"
    file.write_text("1")
    os.utime(file, (1, 1))
    status = file.stat()
    cache = StatCache(tmp_path / "cache")
    cache.get("x", status)
    before = content_hash(data, cache)

    assert content_hash(data, StatCache(tmp_path / "cache")) == before


def test_a_trees_digest_depends_on_paths_modes_links_sizes_and_contents_only() -> None:
    entries = [
        TreeEntry("a", "file", 0o644, 1, "aa" * 32),
        TreeEntry("b", "dir", 0o755),
        TreeEntry("c", "link", 0o777, target="a"),
    ]
    digest = tree_digest(entries)

    assert tree_digest(reversed(entries)) == digest
    for number, other in enumerate(
        [
            TreeEntry("A", "file", 0o644, 1, "aa" * 32),
            TreeEntry("b", "dir", 0o700),
            TreeEntry("c", "link", 0o777, target="b"),
        ]
    ):
        changed = [*entries]
        changed[number] = other
        assert tree_digest(changed) != digest
    assert tree_digest(entries[:2]) != digest
    assert tree_digest([TreeEntry("a", "file", 0o644, 2, "aa" * 32), *entries[1:]]) != digest
    assert tree_digest([*entries[:2], TreeEntry("c", "link", 0o777, 9, target="a")]) == digest
