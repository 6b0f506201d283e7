"""`FolderStore`: objects as files below a folder, for many threads and processes at once.

A write goes to a temporary file, is flushed to the disk, and then linked or renamed to its name
under a lock: a reader sees the old object or the new one, even if a process is killed. An object's
generation is the modification time of its file in nanoseconds, and is greater than any before it.
Files that another program writes into the folder (a job's outputs) are therefore objects, too.
"""

# The protocol `Store` describes the methods.
# ruff: noqa: D102

from __future__ import annotations

import errno
import fcntl
import os
import stat as stat_bits
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from kinetic_payload.errors import (
    KineticError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
)
from kinetic_payload.files.atomic import replacing
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import FULL_DISK, flush_to_disk, make_folder
from kinetic_payload.files.temporary import Temporary, collect_leftovers
from kinetic_payload.limits import refuse_larger
from kinetic_payload.stores.folder.listing import folders, info_of, objects, records
from kinetic_payload.stores.names import OWN_FOLDER, check_name
from kinetic_payload.stores.store import ABSENT, Location, ObjectInfo

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance
    from kinetic_payload.stores.outages import OutageLimit

_SHARDS: Final = 64
_BLOCK: Final = 1 << 20
_FICLONE: Final = 0x40049409
"""https://man7.org/linux/man-pages/man2/FICLONE.2const.html; other systems do not know it."""
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EXDEV}
)
_NO_ROOM: Final = FULL_DISK | {errno.EFBIG}
_ELSEWHERE: Final = "Name another folder with KINETIC_HOME or KINETIC_STORE."
_COARSE: Final = 2_000_000_000
"""Nanoseconds between the times that the coarsest file system can hold."""


class FolderStore:
    """Objects below *root*, which is created if missing and private to its user.

    A part of a name may have as many bytes as the name of a file, mostly 255.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root.expanduser().absolute())
        self.location: Final = Location("folder", self._root)
        self._own = f"{self._root}/{OWN_FOLDER}"
        self._temporaries = ""
        self._locks = ""
        self._prepared = False

    def __repr__(self) -> str:
        return f"FolderStore({self._root!r})"

    @property
    def concurrency(self) -> int:
        """One: a local disk gains nothing from several requests at once."""
        return 1

    def limited(self, limit: OutageLimit) -> Self:  # noqa: ARG002
        """Return this store: a folder does not wait."""
        return self

    def now(self) -> float:
        return time.time()

    def stat(self, name: str) -> ObjectInfo | None:
        with _translated("look at", name):
            return self._stat(name)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        with self.reader(name) as stream:
            if start:
                stream.seek(start)
            return stream.read() if end is None else stream.read(max(0, end - start))

    @contextmanager
    def reader(self, name: str) -> Iterator[BinaryIO]:
        """Open *name* for streaming; the open file does not change if the object is replaced."""
        with _translated("read", name):
            path = self._path(name)
            try:
                stream = open(path, "rb")  # noqa: PTH123, SIM115 - hot; yielded below
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise ObjectNotFoundError(f"No object {name!r} in {self._root}.") from None
        with stream:
            yield stream

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        with self._temporary(name, if_generation) as temporary:
            with _full_disk_translated(name):
                temporary.stream.write(data)
            return self._commit(name, temporary, if_generation)

    @contextmanager
    def writer(
        self,
        name: str,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
    ) -> Iterator[BinaryIO]:
        with self._temporary(name, if_generation) as temporary:
            with _full_disk_translated(name):
                yield temporary.stream
            written = self._commit(name, temporary, if_generation)
        if progress is not None:
            progress(written.size)

    def download(
        self,
        name: str,
        path: Path,
        *,
        progress: Advance | None = None,
        most: int | None = None,
    ) -> None:
        with self.reader(name) as source, _translated("download", name, path):
            refuse_larger(name, os.fstat(source.fileno()).st_size, most)
            with replacing(path) as target:
                copied = _copy(source, target, progress)
                target.flush()
                if os.fstat(target.fileno()).st_size != copied:
                    raise OSError(errno.EIO, "not all of it was written", str(path))

    def upload(
        self,
        name: str,
        path: Path,
        *,
        if_generation: int | None = None,
        progress: Advance | None = None,
        check: FileCheck | None = None,
    ) -> ObjectInfo:
        with path.open("rb") as source, self._temporary(name, if_generation) as temporary:
            with _translated("write", name):
                _copy(source, temporary.stream, progress, check)
            if check is not None:
                check.finish()
            return self._commit(name, temporary, if_generation)

    def renew(self, name: str, *, if_generation: int) -> ObjectInfo | None:
        """Set the time of the object's file to now, which is a new generation."""
        path = self._path(name)
        with _translated("renew", name), self._locked(name) as shard:
            if self._stat(name) is None:
                return None
            self._expect(name, if_generation)
            time_ns = _generations(max(if_generation, _last_generation(shard)))[1]
            try:
                os.utime(path, ns=(time_ns, time_ns))
            except FileNotFoundError:
                return None
            renewed = self._stat(name)
            if renewed is not None:
                _save_generation(shard, renewed.generation)
            return renewed

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with _translated("list", prefix):
            yield from objects(self._root, prefix, start_after)

    def folders(self, prefix: str = "") -> Iterator[str]:
        with _translated("list", prefix):
            yield from folders(self._root, prefix)

    def records(self, prefix: str = "") -> Iterator[tuple[ObjectInfo, bytes | None]]:
        """Iterate over the records that a list of jobs needs, without their bytes."""
        with _translated("list", prefix):
            for info in records(self._root, prefix):
                yield info, None

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        path = self._path(name)
        with _translated("delete", name):
            if if_generation is None and self._stat(name) is None:
                return False
            with self._locked(name) as shard:
                found = self._expect(name, if_generation)
                if found is None:
                    return False
                # A later object of this name must not have this generation again.
                _save_generation(shard, max(found.generation, _last_generation(shard)))
                Path(path).unlink(missing_ok=True)
        with suppress(OSError):  # A writer whose folder is gone creates it again.
            for folder in Path(path).relative_to(self._root).parents[:-1]:
                Path(self._root, folder).rmdir()
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{check_name(name)}"

    def _stat(self, name: str) -> ObjectInfo | None:
        try:
            found = os.stat(self._path(name))  # noqa: PTH116 - hot
        except (FileNotFoundError, NotADirectoryError):
            return None
        return info_of(name, found) if stat_bits.S_ISREG(found.st_mode) else None

    def _expect(self, name: str, generation: int | None) -> ObjectInfo | None:
        found = self._stat(name)
        if generation is not None and generation != (found.generation if found else ABSENT):
            seen = f"has generation {found.generation}" if found else "does not exist"
            wanted = "no object" if generation == ABSENT else f"generation {generation}"
            raise PreconditionFailedError(
                f"{name!r} in {self._root} {seen}; {wanted} was expected."
            )
        return found

    def _prepare(self) -> None:
        if not self._prepared:
            temporaries, locks = f"{self._own}/temporary", f"{self._own}/locks"
            try:
                for folder in (self._root, self._own, temporaries, locks):
                    make_folder(folder)
            except (FileExistsError, NotADirectoryError) as error:
                raise StoreError(
                    f"{self._root} cannot be a store: it needs a folder where a file is ({error.filename}).",
                    hint=_ELSEWHERE,
                ) from error
            self._temporaries, self._locks = temporaries, locks
            collect_leftovers(self._temporaries)
            self._prepared = True

    @contextmanager
    def _temporary(self, name: str, if_generation: int | None) -> Iterator[Temporary]:
        with _translated("write", name):
            self._expect(name, if_generation)
            self._prepare()
            try:
                temporary = Temporary(self._temporaries)
            except FileNotFoundError:  # The store was deleted meanwhile.
                self._prepared = False
                self._prepare()
                temporary = Temporary(self._temporaries)
        with temporary:
            yield temporary

    @contextmanager
    def _locked(self, name: str) -> Iterator[int]:
        self._prepare()
        shard = zlib.crc32(name.encode()) % _SHARDS
        with locked(f"{self._locks}/{shard:02d}") as fd:
            yield fd

    def _commit(self, name: str, temporary: Temporary, if_generation: int | None) -> ObjectInfo:
        path = self._path(name)
        with _translated("write", name):
            temporary.stream.flush()
            flush_to_disk(temporary.fd)
            with self._locked(name) as shard:
                found = self._expect(name, if_generation)
                last = max(found.generation if found else 0, _last_generation(shard))
                written = info_of(name, temporary.date(*_generations(last)))
                _save_generation(shard, written.generation)
                while True:
                    try:
                        _publish(temporary.path, path, replace=if_generation != ABSENT)
                        return written
                    except FileNotFoundError:
                        if not os.fstat(temporary.fd).st_nlink:
                            raise  # The store is being deleted.
                        make_folder(os.path.dirname(path))  # noqa: PTH120 - hot


def _generations(last: int) -> tuple[int, int]:
    """Return the next generation, and one that even a coarse file system can distinguish from *last*."""
    now = time.time_ns()
    return max(now, last + 1), max(now, (last // _COARSE + 1) * _COARSE)


def _last_generation(shard: int) -> int:
    return int.from_bytes(os.pread(shard, 8, 0), "little")


def _save_generation(shard: int, generation: int) -> None:
    os.pwrite(shard, generation.to_bytes(8, "little"), 0)


def _publish(temporary: str, path: str, *, replace: bool) -> None:
    if not replace:
        try:
            os.link(temporary, path)  # Fails if the name exists, even if its writer takes no lock.
        except FileExistsError:
            raise PreconditionFailedError(f"{path} already exists.") from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return
    os.rename(temporary, path)  # noqa: PTH104 - hot


def _copy(
    source: BinaryIO,
    target: BinaryIO,
    progress: Advance | None,
    check: FileCheck | None = None,
) -> int:
    """Copy *source* to *target* and return its size; *target* is buffered, so that no write is partial.

    Where the file system can share blocks between files (Btrfs, XFS), none are written.
    """
    copied = 0
    buffer = memoryview(bytearray(_BLOCK))
    try:
        fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        if check is None:
            copied = os.fstat(target.fileno()).st_size
            if progress is not None:
                progress(copied)
            return copied
        shares, source = True, target  # What is checked is what is kept.
    except OSError:
        shares = False
    readinto = source.readinto  # type: ignore[attr-defined]
    while count := readinto(buffer):
        if not shares:
            target.write(buffer[:count])
        copied += count
        if check is not None:
            check.update(buffer[:count])
        if progress is not None:
            progress(count)
    return copied


@contextmanager
def _full_disk_translated(name: str) -> Iterator[None]:
    """Translate the error of a full disk; other errors may be about the source of the bytes."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        with _translated("write", name):
            raise


@contextmanager
def _translated(verb: str, name: str, place: Path | None = None) -> Iterator[None]:
    """Translate errors of the system; name the object, and the *place* that it is copied to."""
    try:
        yield
    except KineticError:
        raise
    except PermissionError as error:
        raise StorePermissionError(
            f"Not allowed to {verb} {name!r}: {error.strerror} ({error.filename}).",
            hint=f"The store's folder must belong to you. {_ELSEWHERE}",
        ) from error
    except OSError as error:
        hint, what = None, str(error)
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY):
            hint = "A folder store cannot hold both an object 'a' and an object 'a/b'."
        elif error.errno in _NO_ROOM:
            hint = "Make room on that disk." if place else f"Make room on that disk. {_ELSEWHERE}"
            if error.errno == errno.ENOSPC:
                what = f"no space is left on the disk ({error})"
        to = f" to {place}" if place else ""
        raise StoreError(f"Could not {verb} {name!r}{to}: {what}.", hint=hint) from error
