"""Downloads of whole objects, large ones in parallel ranges."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar

from kinetic_payload.errors import IntegrityError, StoreError
from kinetic_payload.files.atomic import replacing
from kinetic_payload.files.private import FULL_DISK
from kinetic_payload.limits import refuse_larger
from kinetic_payload.stores.gcs.bucket import Bucket
from kinetic_payload.stores.gcs.checksums import extended
from kinetic_payload.stores.gcs.resumable_download import Head, ReplacedError, fetch
from kinetic_payload.threads import check_wanted, parallel_map

if TYPE_CHECKING:
    from kinetic_payload.progress import Advance

_T = TypeVar("_T")

PART: Final = 16 << 20
"""The size of a range. Smaller objects take one request."""
_STREAMS: Final = 8
"""Parallel ranges of one object."""
_BLOCK: Final = 1 << 20
_MOST_TRIES: Final = 3
_MOST_REPLACEMENTS: Final = 100


class CorruptedError(Exception):
    """The bytes that arrived do not match the service's checksum."""


def read_all(bucket: Bucket, name: str, *, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes from *start* up to *end* of one generation."""

    def once() -> bytes:
        parts: list[bytes] = []
        head = fetch(bucket, name, lambda _, part: parts.append(part), start=start, end=end)
        data = b"".join(parts)
        if start == 0 and (end is None or end >= head.size):
            _verify(extended(0, data), head)
        return data

    return _retry(bucket, name, once)


def open_all(bucket: Bucket, name: str) -> BinaryIO:
    """Return a stream of one generation, after all of it was downloaded."""

    def once() -> BinaryIO:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - returned
        try:
            _fill(bucket, name, stream)
        except BaseException:
            stream.close()
            raise
        return stream

    with full_disk_translated(bucket, name):
        return _retry(bucket, name, once)


def download(
    bucket: Bucket,
    name: str,
    path: Path,
    *,
    progress: Advance | None = None,
    most: int | None = None,
) -> None:
    """Write the object into the file *path*, complete or not at all.

    Raises:
        IntegrityError: It has more than *most* bytes.
    """

    def once() -> None:
        with replacing(path) as stream:
            _fill(bucket, name, stream, progress, most)

    with full_disk_translated(bucket, name, path):
        _retry(bucket, name, once)


@contextmanager
def full_disk_translated(bucket: Bucket, name: str, place: Path | None = None) -> Iterator[None]:
    """Translate the error of a full disk; name the disk, that of *place* or of temporary files."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        where = (
            f"at {place}" if place else f"in the folder of temporary files, {tempfile.gettempdir()}"
        )
        raise StoreError(
            f"There is no room for {name!r} of gs://{bucket.name} {where}.",
            hint="Make room on that disk, or choose another" + ("." if place else " with TMPDIR."),
        ) from error


def _retry(bucket: Bucket, name: str, once: Callable[[], _T]) -> _T:
    """Return `once()`; repeat it when the object was replaced or its bytes do not match."""
    corrupted = 0
    for _ in range(_MOST_REPLACEMENTS):
        try:
            return once()
        except ReplacedError:
            continue
        except CorruptedError as error:
            corrupted += 1
            if corrupted == _MOST_TRIES:
                raise IntegrityError(
                    f"{name!r} of gs://{bucket.name} was corrupted in transit, {corrupted} times: {error}",
                    hint="Find the proxy, or other device on the network, that changes the bytes.",
                ) from error
    raise StoreError(f"{name!r} of gs://{bucket.name} is replaced faster than it can be read.")


def _fill(
    bucket: Bucket,
    name: str,
    stream: BinaryIO,
    progress: Advance | None = None,
    most: int | None = None,
) -> None:
    """Write a whole object to the file *stream*, and verify it."""

    def put(offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # Once the stream is closed, late threads can write nothing to it.
            written = os.pwrite(stream.fileno(), view, offset)
            view, offset = view[written:], offset + written
        if progress is not None:
            progress(len(data))

    def fetch_part(start: int) -> None:
        with bucket.connection.ranges:
            fetch(bucket, name, put, start=start, end=start + PART, generation=head.generation)

    opened = lambda head: refuse_larger(name, head.size, most)  # noqa: E731 - of one line
    head = fetch(bucket, name, put, end=PART, opened=opened)
    parallel_map(fetch_part, range(PART, head.size, PART), threads=_STREAMS)
    crc = 0
    for start in range(0, head.size, _BLOCK):
        check_wanted()
        crc = extended(crc, os.pread(stream.fileno(), _BLOCK, start))
    _verify(crc, head)


def _verify(crc: int, head: Head) -> None:
    if head.crc32c is not None and head.crc32c != crc:
        raise CorruptedError(f"its CRC32C is {head.crc32c:08x}, but the bytes have {crc:08x}.")
