from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from kinetic_payload.project.file_times import FileTimes
from kinetic_payload.project.hashing import hash_file
from kinetic_payload.project.stat_cache import StatCache

MINUTE = 60 * 10**9


def hashed_later(path: Path, later: int = MINUTE):
    """Hash *path* as if that were *later* nanoseconds after it changed, on a reliable file system."""

    times = FileTimes(file_system=lambda *_: "ext4")
    hashed = hash_file(path, path.name, times=times)
    return hashed._replace(started_ns=path.stat().st_ctime_ns + later)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_text("one")
    return path


def filled(file: Path, cache_file: Path) -> StatCache:
    cache = StatCache(cache_file)
    cache.get("f", file.stat())
    cache.put(hashed_later(file))
    cache.save()
    return StatCache(cache_file)


def test_an_unchanged_file_is_known_in_the_next_process(file: Path, tmp_path: Path) -> None:
    cache = filled(file, tmp_path / "cache" / "c")

    assert cache.get("f", file.stat()) == hash_file(file, "f").digest
    assert cache.get("other", file.stat()) is None


def test_a_change_that_puts_the_time_back_is_noticed(file: Path, tmp_path: Path) -> None:
    cache = filled(file, tmp_path / "c")
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # It is a minute later: another stamp.
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert cache.get("f", file.stat()) is None


def test_a_replaced_file_is_noticed(file: Path, tmp_path: Path) -> None:
    cache = filled(file, tmp_path / "c")
    other = tmp_path / "other"
    other.write_text("two")
    other.replace(file)

    assert cache.get("f", file.stat()) is None


def test_a_file_that_was_written_just_now_is_not_trusted(file: Path, tmp_path: Path) -> None:
    # Another write within the clock's granularity would leave the same times.
    cache = StatCache(tmp_path / "c")
    cache.get("f", file.stat())
    cache.put(hashed_later(file, 90_000_000))
    cache.save()

    assert StatCache(tmp_path / "c").get("f", file.stat()) is None


@pytest.mark.parametrize(("seconds", "lasting"), [(1, False), (20, True)])
def test_a_large_file_may_still_be_written_after_its_times_changed(
    file: Path, seconds: int, lasting: bool
) -> None:
    # One `write` changes times when it begins, and its last bytes may come much later.
    os.truncate(file, 100_000_000)

    assert hashed_later(file, seconds * 10**9).lasting is lasting


def test_a_file_with_a_time_in_the_future_is_not_trusted(file: Path, tmp_path: Path) -> None:
    future = time.time() + 3600
    os.utime(file, (future, future))
    cache = filled(file, tmp_path / "c")

    assert cache.get("f", file.stat()) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-20],
        lambda data: data.replace(b'"f"', b'"g"'),
        lambda data: b"\xff\0 not a cache",
    ],
)
def test_a_damaged_cache_is_empty(file: Path, tmp_path: Path, damage) -> None:
    filled(file, tmp_path / "c")
    (tmp_path / "c").write_bytes(damage((tmp_path / "c").read_bytes()))
    cache = StatCache(tmp_path / "c")

    assert cache.get("f", file.stat()) is None
    cache.put(hashed_later(file))
    cache.save()
    assert StatCache(tmp_path / "c").get("f", file.stat()) is not None


def test_files_that_are_gone_are_forgotten(file: Path, tmp_path: Path) -> None:
    filled(file, tmp_path / "c")
    cache = StatCache(tmp_path / "c")
    cache.get("elsewhere", file.stat())
    cache.save()

    assert StatCache(tmp_path / "c").get("f", file.stat()) is None


def test_a_home_that_cannot_be_written_does_not_matter(file: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked").touch()
    cache = StatCache(tmp_path / "blocked" / "c")
    cache.get("f", file.stat())
    cache.put(hashed_later(file))
    cache.save()


def test_caches_of_two_roots_are_two_files(tmp_path: Path, file: Path) -> None:
    for root in ("a", "b"):
        cache = StatCache.of(tmp_path / root, tmp_path / "caches")
        cache.put(hashed_later(file))
        cache.save()

    assert len(list((tmp_path / "caches").iterdir())) == 2


def test_a_cache_of_an_older_format_is_empty(file: Path, tmp_path: Path) -> None:
    # It may hold digests of files that were mapped when they were read.
    filled(file, tmp_path / "c")
    body = (tmp_path / "c").read_bytes().partition(b"\n")[2]
    (tmp_path / "c").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    assert StatCache(tmp_path / "c").get("f", file.stat()) is None


def test_a_cache_that_others_may_write_to_counts_as_empty(file: Path, tmp_path: Path) -> None:
    cache = filled(file, tmp_path / "c")
    (tmp_path / "c").chmod(0o666)

    assert cache.get("f", file.stat()) is None
    assert filled(file, tmp_path / "c").get("f", file.stat()) is not None, "and is written anew"
