"""Wheel files of a lock, on this machine: downloaded once, verified, kept in a cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from time import time
from typing import BinaryIO, Final

from kinetic_images.downloads import Downloader, DownloadFile, host_of
from kinetic_images.errors import DownloadError
from kinetic_images.lock.packages import LockedPackage
from kinetic_payload.files.locks import locked, try_lock
from kinetic_payload.files.private import FULL_DISK, make_folder
from kinetic_payload.progress import Advance
from kinetic_payload.threads import check_wanted

_CHUNK: Final = 1 << 20
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_LARGEST: Final = 4 << 30
"""Those of GPU libraries have up to 3 GB."""
_KEPT_SECONDS: Final = 86_400.0
"""How long an interrupted download is kept, to be resumed."""
_RECENT_SECONDS: Final = 3_600.0
"""Wheels whose last use is not older are not removed, so that their age need not be reset."""


class WheelFiles:
    """The wheels of locks, in `{folder}/{sha256}/{file}`. Threads and processes can share the folder.

    What is in the folder is complete and verified. *largest* is the most bytes of a wheel whose lock names no size.
    """

    def __init__(
        self, folder: Path, downloader: Downloader | None = None, *, largest: int = _LARGEST
    ) -> None:
        self._folder = folder
        self._largest = largest
        self._parts = folder / "partial"
        self._downloader = downloader or Downloader()

    def size(self, package: LockedPackage) -> int | None:
        """Return the size of the wheel in bytes: as the lock, the cache or its server names it.

        Raises:
            DownloadUnavailableError: The server was not reached, or failed each time.
        """
        if package.size is not None:
            return package.size
        local = package.local_path
        with suppress(OSError):
            return (local or self._path(package)).stat().st_size
        return None if local else self._downloader.size(package.address, what=_name(package))

    def get(self, package: LockedPackage, advance: Advance = lambda _: None) -> Path:
        """Return the file of the wheel *package*, after downloading it if it is missing.

        A wheel on this machine (`file:`) stays where it is. *advance* counts the downloaded bytes.

        Raises:
            DownloadLoginError: The server requires other credentials.
            DownloadUnavailableError: The server was not reached, or failed each time.
            DownloadError: The file is missing, or is not the one that was locked.
        """
        local = package.local_path
        if local is not None:
            sha = hashlib.sha256()
            try:
                with local.open("rb") as opened:
                    while data := opened.read(_CHUNK):
                        check_wanted()
                        sha.update(data)
            except OSError as error:
                raise DownloadError(
                    f"Could not read the wheel of {_name(package)}, {local}: {error.strerror}.",
                    hint="Restore the file, or remove the requirement.",
                ) from error
            if sha.hexdigest() != package.sha256:
                raise _mismatch(package, str(local), "the file was changed")
            return local
        path = self._path(package)
        if self._use(path):
            return path
        make_folder(self._parts)
        part = self._parts / package.sha256
        try:
            with locked(str(part)) as fd:
                # Another thread or process may have downloaded it while this one waited for the lock.
                if self._use(path):
                    part.unlink(missing_ok=True)
                    return path
                with open(os.dup(fd), "r+b", buffering=0) as stream:  # noqa: PTH123 - a descriptor
                    self._download(package, stream, advance)
                    with self._locked():  # Empty folders are removed.
                        make_folder(path.parent)
                        part.replace(path)
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            raise DownloadError(
                f"There is no room for the wheel of {_name(package)} at {part.parent}.",
                hint="Make room on that disk, or move Kinetic's home with KINETIC_HOME.",
            ) from error
        return path

    def collect_leftovers(self) -> None:
        """Remove downloads that were interrupted more than a day ago."""
        if not self._parts.is_dir():
            return
        for path in self._parts.iterdir():
            with suppress(OSError):
                if time() - path.stat().st_mtime < _KEPT_SECONDS:
                    continue
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    if try_lock(fd):
                        path.unlink()
                finally:
                    os.close(fd)

    def collect_unused(
        self,
        oldest: float,
        *,
        size: int,
        kept: float,
        spare: Callable[[Path], bool] = lambda _: False,
    ) -> None:
        """Remove wheels that were not used since *oldest*, then the least recently used ones beyond *size* bytes.

        Those that were used since *kept* stay in any case: a process may be about to read them. So do those for
        which *spare* returns True; it is called before a removal.
        """
        found = []
        for path in self._folder.glob("*/*"):
            if _SHA256.fullmatch(path.parent.name):
                with suppress(OSError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        total = 0
        for used, length, path in sorted(found, reverse=True):
            if used < min(oldest, kept) or (total + length > size and used < kept):
                if spare(path):
                    continue
                with suppress(OSError), self._locked():
                    if path.stat().st_mtime <= used:
                        path.unlink()
                        path.parent.rmdir()
            else:
                total += length

    def _use(self, path: Path) -> bool:
        """Reset the age of *path*; return whether it exists."""
        try:
            if time() - path.stat().st_mtime > _RECENT_SECONDS:
                with self._locked():
                    os.utime(path)
        except FileNotFoundError:
            return False
        except OSError:  # It may be read, and not be written.
            return path.exists()
        return True

    def _locked(self) -> AbstractContextManager[int]:
        return locked(str(self._folder / ".lock"))

    def _path(self, package: LockedPackage) -> Path:
        if not _SHA256.fullmatch(package.sha256) or Path(package.file).name != package.file:
            raise DownloadError(
                f"The lock of {_name(package)} is damaged: {package.file!r} with digest {package.sha256!r}.",
                hint="Resolve the dependencies again: set KINETIC_REBUILD=1.",
            )
        return self._folder / package.sha256 / package.file

    def _download(self, package: LockedPackage, stream: BinaryIO, advance: Advance) -> None:
        most = self._largest if package.size is None else package.size
        too_large = _mismatch(package, host_of(package.address), f"more than {most} bytes arrived")
        sink = DownloadFile(stream, advance, most=most, too_large=too_large)
        # If a part was there already, the machine may have crashed while it was written: then once more.
        for _ in range(2 if sink.position else 1):
            self._downloader.fetch(package.address, sink, what=_name(package))
            if sink.sha.hexdigest() == package.sha256:
                os.fsync(stream.fileno())
                return
            received = sink.position
            sink.restart()
        raise _mismatch(package, host_of(package.address), f"{received} bytes arrived")


def _mismatch(package: LockedPackage, place: str, seen: str) -> DownloadError:
    return DownloadError(
        f"The wheel of {_name(package)} at {place} is not the one that was locked: {seen}, "
        f"and the SHA-256 is not {package.sha256[:12]}….",
        hint="Try again. If this repeats, resolve the dependencies again: set KINETIC_REBUILD=1.",
    )


def _name(package: LockedPackage) -> str:
    return f"{package.name} {package.version}".rstrip()
