"""Objects by name: the `Store` protocol, and where a store lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kinetic_payload.progress import Advance

ABSENT: Final = 0
"""The generation of an object that does not exist: `if_generation=ABSENT` means create only."""


class Check(Protocol):
    """Whether bytes are those that were expected: it is fed all of them, in order."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Take the next piece."""
        ...

    def copy(self) -> Check:
        """Return a check that has seen the same bytes."""
        ...

    def finish(self) -> None:
        """Raise an exception of its own unless the bytes were those."""
        ...


@dataclass(frozen=True)
class ObjectInfo:
    """What a store knows about an object without reading it."""

    name: str
    size: int
    """In bytes."""
    generation: int
    """Changes with every write of this name; greater than zero."""
    updated: float
    """Seconds since the epoch."""


class Store(Protocol):
    """The few things Kinetic asks of a store. Writes are atomic: an object is whole or absent.

    Names are relative, `/`-separated, without empty, `.` or `..` parts, at most 1,024 bytes of UTF-8.
    All methods may be called from any thread. Errors are those of `kinetic_payload.errors`.
    """

    @property
    def location(self) -> Location:
        """Where this store lies; `open_store(location)` opens it again in another process."""
        ...

    @property
    def concurrency(self) -> int:
        """How many requests at once are worth it: 1 where they cost nothing, many over a network."""
        ...

    def now(self) -> float:
        """Return the time in seconds since the epoch by the store's own clock, that of `updated`."""
        ...

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known about *name*, or None."""
        ...

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of *name* from *start* up to *end* (exclusive).

        A range that begins at or after the end of the object is empty.
        """
        ...

    def reader(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open *name* for streaming; what is read is one generation, also if it is replaced."""
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

        The stream is seekable until then. The precondition is checked at the end, too, and the bytes
        that *progress* is told of are on their way then: those of the whole object.
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
            IntegrityError: It has more than *most* bytes; no more of it was fetched.
        """
        ...

    def upload(
        self,
        name: str,
        path: Path,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
        check: Check | None = None,
    ) -> ObjectInfo:
        """Write the file *path* as *name*, streaming.

        The bytes that are sent are those that *check* is fed; if it raises, nothing is written.
        """
        ...

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        """Make the object young, where it lies and without moving its bytes; None if it is gone.

        What is collected by age starts anew. The generation changes.

        Raises:
            PreconditionFailedError: It is of another generation: somebody wrote it, so it is young.
        """
        ...

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Iterate over objects whose name begins with *prefix*, in order of their names."""
        ...

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Iterate over the distinct first parts (ending in `/`) of the names below *prefix*."""
        ...

    def records(self) -> Iterator[tuple[ObjectInfo, bytes | None]]:
        """Iterate over the objects `{folder}/{name}` with a name of `layout.LISTED`, in order.

        Each comes with its bytes where a list of the store has them, and with None where they must be read.
        """
        ...

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        """Delete *name*; return whether it was there."""
        ...


@runtime_checkable
class Mountable(Protocol):
    """A store whose objects can be mounted as files, by gcsfuse for instance.

    What files and folders need there besides objects with their contents.
    """

    def mark_folder(self, name: str) -> None:
        """Have a folder *name* (without a slash at the end) also where nothing lies in it."""
        ...

    def mark_link(self, name: str, target: str) -> None:
        """Have a symbolic link *name* to *target*."""
        ...


@dataclass(frozen=True)
class Location:
    """Where a store lies: a bucket (`gs://bucket`) or a folder. Parsed once, printed as given."""

    kind: str
    """`gs` or `folder`."""
    path: str
    """The bucket's name (and prefix), or the folder's absolute path."""

    def __str__(self) -> str:
        return f"gs://{self.path}" if self.kind == "gs" else self.path


def parse_location(text: str) -> Location:
    """Parse `gs://bucket[/prefix]`, `file:///folder` or a folder's path.

    Raises:
        InvalidRequestError: It is none of these.
    """
    from kinetic_payload.errors import InvalidRequestError

    if text.startswith("gs://"):
        bucket = text.removeprefix("gs://").strip("/")
        if not bucket:
            raise InvalidRequestError(f"{text!r} names no bucket.", hint="Write gs://BUCKET.")
        return Location("gs", bucket)
    if text.startswith("gs:") or ("://" in text and not text.startswith("file://")):
        raise InvalidRequestError(
            f"{text!r} is not a place for a store.", hint="Use gs://BUCKET or a folder."
        )
    path = text.removeprefix("file://")
    if not path:
        raise InvalidRequestError(
            "An empty text names no store.", hint="Use gs://BUCKET or a folder."
        )
    try:
        return Location("folder", str(Path(path).expanduser().absolute()))
    except RuntimeError as error:
        raise InvalidRequestError(
            f"{text!r} names a store in a home folder that is not known here.",
            hint="Write the path without ~, or set HOME.",
        ) from error
