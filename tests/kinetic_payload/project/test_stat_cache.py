from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetic_payload.project.hashing import hash_file
from kinetic_payload.project.stat_cache import Hashed, StatCache, is_old

MINUTE = 60 * 10**9


def hashed_later(path: Path, later: int = MINUTE) -> Hashed:
    """Hash *path* as if that were *later* nanoseconds after it changed."""
    hashed = hash_file(path, path.name)
    return hashed._replace(lasting=is_old(hashed.status, path.stat().st_ctime_ns + later))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_text("one")
    return path


def filled(file: Path, cache_file: Path, later: int = MINUTE) -> StatCache:
    cache = StatCache(cache_file)
    cache.get("f", file.stat())
    cache.put(hashed_later(file, later))
    cache.save()
    return StatCache(cache_file)


def test_an_unchanged_file_is_known_in_later_processes(file: Path, tmp_path: Path) -> None:
    cache = filled(file, tmp_path / "cache" / "c")

    for _ in range(2):
        assert cache.get("f", file.stat()) == hash_file(file, "f").digest
        assert cache.get("other", file.stat()) is None
        cache.put(hashed_later(file)._replace(relpath="another"))
        cache.save()
        cache = StatCache(tmp_path / "cache" / "c")


def written_with_its_time_put_back(file: Path) -> None:
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # It is a minute later: another stamp.
        file.write_text("two")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("two")
    other.replace(file)


@pytest.mark.parametrize("change", [written_with_its_time_put_back, replaced])
def test_a_change_is_noticed(file: Path, tmp_path: Path, change: Callable[[Path], None]) -> None:
    cache = filled(file, tmp_path / "c")
    change(file)

    assert cache.get("f", file.stat()) is None


@pytest.mark.parametrize(("later", "ahead"), [(1_900_000_000, 0), (MINUTE, 3600)])
def test_a_file_that_was_just_written_or_has_a_future_time_is_not_cached(
    file: Path, tmp_path: Path, later: int, ahead: int
) -> None:
    # Another write within the clock's granularity would leave the same times.
    if ahead:
        os.utime(file, (time.time() + ahead,) * 2)

    assert filled(file, tmp_path / "c", later).get("f", file.stat()) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cache: cache.write_bytes(b""),
        lambda cache: os.truncate(cache, cache.stat().st_size - 20),
        lambda cache: cache.write_bytes(cache.read_bytes().replace(b'"f"', b'"g"')),
        lambda cache: cache.write_bytes(b"\xff\0 not a cache"),
        lambda cache: cache.chmod(0o666),
    ],
)
def test_a_cache_that_is_damaged_or_that_others_may_write_to_counts_as_empty(
    file: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    cache = filled(file, tmp_path / "c")
    spoil(tmp_path / "c")

    assert cache.get("f", file.stat()) is None
    assert filled(file, tmp_path / "c").get("f", file.stat()) is not None


def test_files_that_no_longer_exist_are_dropped(file: Path, tmp_path: Path) -> None:
    filled(file, tmp_path / "c")
    cache = StatCache(tmp_path / "c")
    cache.get("elsewhere", file.stat())
    cache.save()

    assert StatCache(tmp_path / "c").get("f", file.stat()) is None


def test_a_cache_that_cannot_be_written_is_no_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked").touch()

    filled(file, tmp_path / "blocked" / "c")


def test_caches_of_two_roots_are_two_files(tmp_path: Path, file: Path) -> None:
    for root in ("a", "b"):
        cache = StatCache.of(tmp_path / root, tmp_path / "caches")
        cache.put(hashed_later(file))
        cache.save()

    assert len(list((tmp_path / "caches").iterdir())) == 2
