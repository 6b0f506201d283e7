"""`GcsStore`: a store in a bucket of Google Cloud Storage, or of a compatible service."""

# The protocol `Store` describes the methods.
# ruff: noqa: D102

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self, cast
from urllib.parse import quote, unquote_to_bytes

from kinetic_payload.layout import LISTED, is_listed
from kinetic_payload.stores.gcs.bucket import Bucket, BucketObject
from kinetic_payload.stores.gcs.checksums import extended
from kinetic_payload.stores.gcs.connection import CONCURRENCY
from kinetic_payload.stores.gcs.download import download, full_disk_translated, open_all, read_all
from kinetic_payload.stores.gcs.resumable_upload import upload_large
from kinetic_payload.stores.gcs.retry import RetryPolicy
from kinetic_payload.stores.gcs.service import Service
from kinetic_payload.stores.gcs.upload import SMALL, upload_small
from kinetic_payload.stores.gcs.upload_content import Content
from kinetic_payload.stores.names import check_name, is_name
from kinetic_payload.stores.outages import OutageLimit, changed_copy
from kinetic_payload.stores.store import Location, ObjectInfo

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance

_CONTENT_KEY: Final = "kinetic-content"
_MOST_METADATA: Final = 4096
"""The most bytes of one value of metadata.

https://docs.cloud.google.com/storage/docs/reference/rpc/google.storage.v1
"""
_PLAIN_BYTES: Final = bytes(code for code in range(0x20, 0x7F) if code != ord("%"))
_IN_MEMORY: Final = 1 << 20
_RECORDS: Final = f"*/{{{','.join(LISTED)}}}"
_LARGE: Final = ("data/", "groups/", "logs/", "outputs/")
"""Folders with any number of objects, which a search for records skips; in order."""
LINK_TARGET: Final = "gcsfuse_symlink_target"
"""The key of the metadata by which gcsfuse recognises a symbolic link."""


class GcsStore:
    """Objects below *path*: a bucket, or a bucket and a prefix in it.

    The first request is made when the first object is used. *on_outage* is called with a sentence, at most once
    a minute, while the service is unavailable.
    """

    def __init__(
        self,
        path: str,
        *,
        service: Service | None = None,
        retry: RetryPolicy | None = None,
        on_outage: Callable[[str], object] = lambda _: None,
    ) -> None:
        bucket, _, prefix = path.strip("/").partition("/")
        self._path = path.strip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._bucket = Bucket(bucket, service=service, retry=retry, on_outage=on_outage)

    def __repr__(self) -> str:
        return f"GcsStore({self._path!r})"

    @property
    def location(self) -> Location:
        return Location("gs", self._path)

    @property
    def concurrency(self) -> int:
        return CONCURRENCY

    def limited(self, limit: OutageLimit) -> Self:
        return changed_copy(self, _bucket=self._bucket.limited(limit))

    def now(self) -> float:
        """Return the service's time; make a request if there was none yet."""
        return self._bucket.now()

    def stat(self, name: str) -> ObjectInfo | None:
        found = self._bucket.stat(self._full_name(name))
        return None if found is None else self._info(found)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        if end is not None and end <= start:
            # HTTP has no empty range; read a byte to find out whether the object exists.
            return read_all(self._bucket, self._full_name(name), end=1)[:0]
        return read_all(self._bucket, self._full_name(name), start=start, end=end)

    @contextmanager
    def reader(self, name: str) -> Iterator[BinaryIO]:
        """Open *name* for streaming, after all of it was downloaded."""
        with open_all(self._bucket, self._full_name(name)) as stream:
            yield stream

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        metadata = metadata_of(data) if is_listed(name) else {}
        return self._put(self._full_name(name), Content.of(data), if_generation, metadata=metadata)

    @contextmanager
    def writer(
        self,
        name: str,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
    ) -> Iterator[BinaryIO]:
        """Open *name* for streaming; it appears when the block ends without an exception.

        Until then it is kept on this machine. The precondition is checked at the end only.
        """
        full = self._full_name(name)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
            stream = cast(BinaryIO, spool)
            with full_disk_translated(self._bucket, full):
                yield stream
            self._put(full, Content(stream), if_generation, progress)

    def download(
        self,
        name: str,
        path: Path,
        *,
        progress: Advance | None = None,
        most: int | None = None,
    ) -> None:
        download(self._bucket, self._full_name(name), path, progress=progress, most=most)

    def upload(
        self,
        name: str,
        path: Path,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
        check: FileCheck | None = None,
    ) -> ObjectInfo:
        with path.open("rb") as stream:
            full = self._full_name(name)
            return self._put(full, Content(stream), if_generation, progress, check)

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        """Copy the object onto itself, which resets its age; None if it does not exist."""
        found = self._bucket.renew(self._full_name(name), if_generation=if_generation)
        return None if found is None else self._info(found)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        start = self._prefix + start_after if start_after else ""
        for found in self._bucket.list(self._prefix + prefix, start=start):
            info = self._info(found)
            if info.name > start_after and is_name(info.name):
                yield info

    def folders(self, prefix: str = "") -> Iterator[str]:
        for folder in self._bucket.folders(self._prefix + prefix):
            name = folder[len(self._prefix) :]
            if is_name(name[:-1]):
                yield name

    def records(self, prefix: str = "") -> Iterator[tuple[ObjectInfo, bytes | None]]:
        """Iterate over the records for a list of jobs, in order, with the bytes of small ones."""
        skipped = () if prefix else _LARGE
        starts = ["", *(f"{folder[:-1]}0" for folder in skipped)]  # "0" comes right after "/".
        for start, end in zip(starts, [*skipped, ""], strict=True):
            within = {"start": start and self._prefix + start, "end": end and self._prefix + end}
            for found in self._bucket.matching(self._prefix + prefix, _RECORDS, **within):
                info = self._info(found)
                rest = info.name[len(prefix) :]
                if rest.partition("/")[2] in LISTED and is_name(info.name):
                    yield info, content_of(found)

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        return self._bucket.delete(self._full_name(name), if_generation=if_generation)

    def mark_folder(self, name: str) -> None:
        """Write an empty object `name/`, so that the folder *name* exists even if it is empty."""
        # Written even if it exists, to reset its age.
        upload_small(self._bucket, self._full_name(name) + "/", Content.of(b""))

    def mark_link(self, name: str, target: str) -> None:
        """Make a symbolic link *name* to *target*: an empty object with the target as metadata."""
        upload_small(
            self._bucket, self._full_name(name), Content.of(b""), metadata={LINK_TARGET: target}
        )

    def _put(
        self,
        full: str,
        content: Content,
        if_generation: int | None,
        progress: Advance | None = None,
        check: FileCheck | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        small = partial(upload_small, metadata=metadata)  # Large objects have none.
        put = small if content.size <= SMALL else upload_large
        written = put(
            self._bucket,
            full,
            content,
            if_generation=if_generation,
            progress=progress,
            check=check,
        )
        return self._info(written)

    def _full_name(self, name: str) -> str:
        return self._prefix + check_name(name)

    def _info(self, found: BucketObject) -> ObjectInfo:
        name = found.name[len(self._prefix) :]
        return ObjectInfo(name, found.size, found.generation, found.created)


def metadata_of(data: bytes) -> dict[str, str]:
    """Return the metadata that holds *data*; empty if *data* is too large."""
    text = quote(data, safe=_PLAIN_BYTES) if len(data) <= _MOST_METADATA else ""
    return {_CONTENT_KEY: text} if 0 < len(text) <= _MOST_METADATA else {}


def content_of(found: BucketObject) -> bytes | None:
    """Return the content of *found* from its metadata; None if it is missing or does not match the checksum."""
    text = found.metadata.get(_CONTENT_KEY)
    if not isinstance(text, str) or len(text) > _MOST_METADATA:
        return None
    data = unquote_to_bytes(text)
    return data if (len(data), extended(0, data)) == (found.size, found.crc32c) else None
