"""Stores of objects: the `Store` protocol and the `Location` of a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self, runtime_checkable

from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance
    from kinetic_payload.stores.outages import OutageLimit

ABSENT: Final = 0
"""The generation of an object that does not exist: `if_generation=ABSENT` means create only."""


@dataclass(frozen=True)
class ObjectInfo:
    """The information that a store has about an object without reading it."""

    name: str
    size: int
    """In bytes."""
    generation: int
    """Changes with every write of this name; greater than zero."""
    updated: float
    """Seconds since the epoch."""


class Store(Protocol):
    """The operations that Kinetic needs from a store. Writes are atomic: an object is whole or absent.

    Names are relative, `/`-separated, without empty, `.` or `..` parts or line breaks, at most 1,024 bytes of UTF-8.
    All methods may be called from any thread. Errors are those of `kinetic_payload.errors`.
    """

    @property
    def location(self) -> Location:
        """The store's location; `open_store(location)` opens it again in another process."""
        ...

    @property
    def concurrency(self) -> int:
        """How many requests to make at once: 1 for a local disk, many over a network."""
        ...

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same store for the calls of one operation: together they wait for it up to *limit*."""
        ...

    def now(self) -> float:
        """Return the store's own time, as in `updated`, in seconds since the epoch."""
        ...

    def stat(self, name: str) -> ObjectInfo | None:
        """Return the information on *name*, or None if it does not exist."""
        ...

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of *name* from *start* up to *end* (exclusive).

        A range that begins at or after the end of the object is empty.
        """
        ...

    def reader(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open *name* for streaming; all bytes are of one generation, even if the object is replaced."""
        ...

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        """Write *data* as *name*.

        Raises:
            PreconditionFailedError: `if_generation` was given and is not the object's.
        """
        ...

    def writer(
        self,
        name: str,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
    ) -> AbstractContextManager[BinaryIO]:
        """Open *name* for streaming; it appears when the block ends without an exception.

        The stream is seekable until then. The precondition is checked again at the end. The bytes are sent
        at the end, and *progress* counts them then.
        """
        ...

    def download(
        self,
        name: str,
        path: Path,
        *,
        progress: Advance | None = None,
        most: int | None = None,
    ) -> None:
        """Write the object into the file *path*, complete or not at all.

        Raises:
            IntegrityError: The object has more than *most* bytes. It was not fetched completely.
        """
        ...

    def upload(
        self,
        name: str,
        path: Path,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
        check: FileCheck | None = None,
    ) -> ObjectInfo:
        """Write the file *path* as *name*, without reading it into memory.

        *check* receives all bytes that are sent; if it raises, nothing is written.
        """
        ...

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        """Reset the object's age without sending its bytes; return None if the object does not exist.

        Its generation changes.

        Raises:
            PreconditionFailedError: The object has another generation, because it was written meanwhile.
        """
        ...

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Iterate over objects whose name begins with *prefix*, in order of their names."""
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Iterate over the distinct names up to the first `/` after *prefix*, in order."""
        ...

    def records(self, prefix: str = "") -> Iterator[tuple[ObjectInfo, bytes | None]]:
        """Iterate over the objects `{prefix}{folder}/{name}` with a name of `layout.LISTED`, in order.

        The *prefix* is empty or ends with `/`.

        Each comes with its bytes if the store's list contains them, else with None. Such a record must be read.
        """
        ...

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        """Delete *name*; return whether it existed."""
        ...


@runtime_checkable
class Mountable(Protocol):
    """A store whose objects can be mounted as files, for instance by gcsfuse.

    A mount needs these marks in addition to the objects of files.
    """

    def mark_folder(self, name: str) -> None:
        """Create the mark of a folder *name* (no slash at the end), so that it exists even if empty."""
        ...

    def mark_link(self, name: str, target: str) -> None:
        """Create the mark of a symbolic link *name* to *target*."""
        ...


@frozen()
class Location:
    """The place of a store: a bucket (`gs://bucket`) or a folder."""

    kind: str
    """`gs` or `folder`."""
    path: str
    """The bucket's name (and prefix), or the folder's absolute path."""

    def __str__(self) -> str:
        return f"gs://{self.path}" if self.kind == "gs" else self.path


BUCKET_NAMES: Final = "Names have 3 to 63 lower-case letters, digits, dashes, underscores and dots."
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


def is_bucket_name(text: str) -> bool:
    """Return whether a bucket of Google Cloud Storage can have the name *text*."""
    return _BUCKET.fullmatch(text) is not None and ".." not in text


def parse_location(text: str) -> Location:
    """Parse `gs://bucket[/prefix]`, `file:///folder` or a folder's path.

    Raises:
        InvalidRequestError: It is not one of these.
    """
    from kinetic_payload.errors import InvalidRequestError

    if text.startswith("gs://"):
        path = text.removeprefix("gs://").rstrip("/")
        bucket = path.partition("/")[0]
        if not bucket:
            raise InvalidRequestError(f"{text!r} names no bucket.", hint="Write gs://BUCKET.")
        if not is_bucket_name(bucket):
            raise InvalidRequestError(
                f"{text!r} names no bucket: {bucket!r} is not a valid bucket name.",
                hint=BUCKET_NAMES,
            )
        return Location("gs", path)
    path = text.removeprefix("file://")
    if not path or text.startswith("gs:") or "://" in path:
        raise InvalidRequestError(
            f"{text!r} is not a location of a store.", hint="Use gs://BUCKET or a folder."
        )
    try:
        return Location("folder", str(Path(path).expanduser().absolute()))
    except RuntimeError as error:
        raise InvalidRequestError(
            f"{text!r} names a store in a home folder that is unknown on this machine.",
            hint="Write the path without ~, or set HOME.",
        ) from error
