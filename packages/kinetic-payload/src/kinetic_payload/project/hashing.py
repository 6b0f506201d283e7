"""Digests of many files, computed on all cores unless the stat cache has them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kinetic_payload.digests import CHUNK, FileHasher, open_regular
from kinetic_payload.errors import DataError, KineticError
from kinetic_payload.progress import silent
from kinetic_payload.project.stat_cache import Hashed, StatCache, is_old, stamp_of
from kinetic_payload.threads import batches, check_wanted, cores, parallel_map

if TYPE_CHECKING:
    from kinetic_payload.progress import Advance, TrackProgress

_BATCH_BYTES: Final = 4 << 20
_BATCH_FILES: Final = 128


def hash_file(path: Path | str, relpath: str, advance: Advance | None = None) -> Hashed:
    """Read the file *path* once and return its digest under the name *relpath*."""
    started = time.time_ns()
    descriptor = open_regular(path)
    try:
        before = os.fstat(descriptor)
        # Most files are small: one read and one update.
        sha = FileHasher(relpath)
        size = 0
        length = min(before.st_size + 1, CHUNK)
        while data := os.read(descriptor, length):
            sha.update(data)
            size += len(data)
            if advance is not None:
                advance(len(data))
            check_wanted()
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    unchanged = size == after.st_size and stamp_of(before) == stamp_of(after)
    lasting = unchanged and is_old(before, started)
    return Hashed(relpath, sha.hexdigest(), size, before, lasting)


def content_hash(path: Path, cache: StatCache | None = None) -> str:
    """Return the SHA-256 of all file contents below *path*, in sorted-walk order.

    Every file's digest covers its relative path and its contents. If *path* is a file, its relative
    path is its name. Symlinked directories are not entered; a symlinked file has the contents of its
    target. Dangling links, sockets and pipes are left out.

    Raises:
        DataError: Files cannot be read; the message names them.
    """
    if path.is_dir():
        prefix = b"dir:"
        files = [(name, os.path.relpath(name, path), status) for name, status in _walk(str(path))]
    else:
        prefix = b"file:"
        try:
            files = [(str(path), path.name, path.stat())]
        except OSError as error:
            raise unreadable(DataError, "data", path, {path.name: error}) from error
    digests, problems = digests_of(files, cache)
    if problems:
        raise unreadable(DataError, "data", path, problems)
    sha = hashlib.sha256(prefix)
    for _, relpath, _ in files:
        sha.update(bytes.fromhex(digests[relpath][0]))
    return sha.hexdigest()


def digests_of(
    files: Iterable[tuple[str, str, os.stat_result]],
    cache: StatCache | None,
    track: TrackProgress = silent,
    doing: str = "",
) -> tuple[dict[str, tuple[str, int]], dict[str, OSError]]:
    """Return the digests and sizes of files, given as path, relative path and status; read what is not in *cache*.

    Also return the error of each file that cannot be read. Both are by relative path.
    """
    found: dict[str, tuple[str, int]] = {}
    problems: dict[str, OSError] = {}
    unknown = []
    for path, relpath, status in files:
        digest = cache.get(relpath, status) if cache is not None else None
        if digest is None:
            unknown.append((path, relpath, status.st_size))
        else:
            found[relpath] = digest, status.st_size

    def hash_batch(batch: Sequence[tuple[str, str, int]]) -> None:
        for path, relpath, _ in batch:
            try:
                hashed = hash_file(path, relpath, advance)
            except OSError as error:
                problems[relpath] = error
                continue
            found[relpath] = hashed.digest, hashed.size
            if cache is not None:
                cache.put(hashed)

    try:
        if unknown:
            with track(doing, sum(size for _, _, size in unknown)) as advance:
                # The largest first, so that all cores end at about the same time.
                unknown.sort(key=itemgetter(2), reverse=True)
                work = batches(unknown, itemgetter(2), most=_BATCH_FILES, size=_BATCH_BYTES)
                parallel_map(hash_batch, list(work), threads=cores())
    finally:  # Also if reading fails or is interrupted.
        if cache is not None:
            cache.save()
    return found, problems


def unreadable(
    kind: type[KineticError], what: str, path: Path, problems: dict[str, OSError]
) -> KineticError:
    """Return the error of this *kind* that names all *problems*."""
    lines = [f"  {name!r}: {error.strerror or error}" for name, error in sorted(problems.items())]
    first = f"{len(lines)} of the files of the {what} in {path} cannot be read:"
    return kind("\n".join([first, *lines]), hint="Make them readable, or leave them out.")


def _walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below *top* as `os.walk` orders them: a folder's files, then its folders."""
    folders = []
    found = []
    for entry in os.scandir(top):
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
        elif entry.is_file():
            found.append((entry.path, entry.stat()))
    yield from sorted(found, key=lambda named: named[0])
    for folder in sorted(folders):
        yield from _walk(folder)
