from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic_payload.digests import FileHasher, TreeEntry, file_digest, tree_digest
from kinetic_payload.errors import DataError
from kinetic_payload.progress import Advance
from kinetic_payload.project.hashing import content_hash, digests_of, hash_file
from kinetic_payload.project.snapshot import tree_of
from kinetic_payload.project.stat_cache import StatCache


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_files_digest_covers_its_name_and_its_contents_in_pieces_of_any_size(
    tmp_path: Path,
) -> None:
    data, name = os.urandom(3 << 20), "src/ä\udcff"
    (tmp_path / "a").write_bytes(data)
    hasher = FileHasher(name)
    for start in range(0, len(data), 1000_003):
        hasher.update(data[start : start + 1000_003])

    assert file_digest(tmp_path / "a", name) == sha("src/ä".encode() + b"\xff\0" + data)
    assert hasher.hexdigest() == file_digest(tmp_path / "a", name)


def test_an_interruption_stops_the_reading_of_all_files(tmp_path: Path) -> None:
    pieces, first = 1000, threading.Lock()
    for name in ("a", "b"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, pieces << 20)
    read: list[int] = []

    def advance(size: int) -> None:
        read.append(size)
        if first.acquire(blocking=False):
            raise KeyboardInterrupt
        threading.Event().wait(0.02)

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        yield advance

    files = [(str(path), path.name, path.stat()) for path in tmp_path.iterdir()]
    with pytest.raises(KeyboardInterrupt):
        digests_of(files, None, track)

    assert (
        len(read) < 50
    )  # Not stopped, the other thread reads twice as many until it is left alone.


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that nobody can read")
def test_all_unreadable_files_are_named_and_the_others_are_cached(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("1")
    os.utime(data / "x", (1, 1))
    while not hash_file(data / "x", "x").lasting:
        threading.Event().wait(0.1)
    for name in ("one", "two"):
        (data / name).symlink_to("/proc/self/mem")

    for read in (lambda cache: content_hash(data, cache), lambda cache: tree_of(data, cache)):
        with pytest.raises(DataError, match=r"2 of the files of the data .*\n.*'one'.*\n.*'two'"):
            read(StatCache(tmp_path / "cache"))
        assert StatCache(tmp_path / "cache").get("x", (data / "x").stat()) is not None
        (tmp_path / "cache").unlink()


def test_content_hash_follows_the_documented_recipe(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_text("1")
    (tmp_path / "a.txt").write_text("2")
    (tmp_path / "c").write_text("3")
    parts = [b"a.txt\0" + b"2", b"c\0" + b"3", b"b/x\0" + b"1"]

    assert content_hash(tmp_path) == sha(
        b"dir:" + b"".join(hashlib.sha256(part).digest() for part in parts)
    )
    assert content_hash(tmp_path / "c") == sha(b"file:" + hashlib.sha256(parts[1]).digest())


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


def test_a_trees_digest_depends_on_paths_modes_links_sizes_and_contents_only() -> None:
    file = TreeEntry("a", "file", 0o644, 1, "aa" * 32)
    folder, link = TreeEntry("b", "dir", 0o755), TreeEntry("c", "link", 0o777, target="a")
    digest = tree_digest([file, folder, link])

    assert tree_digest([link._replace(size=9), folder, file]) == digest
    for entries in (
        [file._replace(path="A"), folder, link],
        [file._replace(mode=0o600), folder, link],
        [file._replace(size=2), folder, link],
        [file._replace(digest="bb" * 32), folder, link],
        [file, folder._replace(mode=0o700), link],
        [file, folder, link._replace(target="b")],
        [file, folder],
    ):
        assert tree_digest(entries) != digest
