"""Private files: folders with mode 0700, files with mode 0600, whatever the umask is.

These functions create all files that Kinetic keeps for itself. Files of the user (of a project, of `Data`, of
the function) keep their modes, in a private folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    AnyPath: TypeAlias = str | os.PathLike[str]

FOLDER_MODE = 0o700
FILE_MODE = 0o600
FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of errors that mean that the disk, or the user's quota, is full."""
_BARRIER = 85
"""`F_BARRIERFSYNC` of macOS's `fcntl.h`, which Python's module does not name."""


def make_folder(path: AnyPath) -> None:
    """Create the folder *path* and its missing parents; an existing folder is not changed.

    Raises:
        FileExistsError: The path is not a folder.
    """
    try:
        _make_or_keep(path)
    except FileNotFoundError:
        above = os.path.dirname(path)  # noqa: PTH120 - light
        if above in ("", path):
            raise
        make_folder(above)
        _make_or_keep(path)  # In `/proc`, folders cannot be made although the parent exists.


def _make_or_keep(path: AnyPath) -> None:
    try:
        make_new_folder(path)
    except FileExistsError:
        if not os.path.isdir(path):  # noqa: PTH112 - light
            raise


def make_new_folder(path: AnyPath) -> None:
    """Create the folder *path*.

    Raises:
        FileExistsError: The path exists.
    """
    os.mkdir(path, FOLDER_MODE)  # noqa: PTH102 - light
    _restore(path, FOLDER_MODE)


def make_fifo(path: AnyPath) -> None:
    """Create the FIFO *path*."""
    os.mkfifo(path, FILE_MODE)
    _restore(path, FILE_MODE)


def open_private(path: AnyPath, flags: int) -> int:
    """Open the file *path* like `os.open`; a new file is private. Can be an `opener` for `open`."""
    fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    if flags & os.O_CREAT:
        try:
            _restore(fd, FILE_MODE)
        except BaseException:
            os.close(fd)
            raise
    return fd


def write_private(path: AnyPath, data: bytes, *, durable: bool = False) -> None:
    """Write the file *path* atomically; with *durable*, it survives a crash of the machine."""
    part = f"{os.fspath(path)}.{os.urandom(6).hex()}"
    try:
        fd = open_private(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with open(fd, "wb") as stream:  # noqa: PTH123 - a descriptor
            stream.write(data)
            if durable:
                stream.flush()
                flush_to_disk(fd)
        os.replace(part, path)  # noqa: PTH105 - light
    except BaseException:
        try:  # noqa: SIM105 - light
            os.unlink(part)  # noqa: PTH108 - light
        except OSError:
            pass  # It was not created, or was renamed to `path`.
        raise


def flush_to_disk(
    descriptor: int,
    *,
    platform: str = sys.platform,
    control: Callable[[int, int], object] = fcntl.fcntl,
) -> None:
    """Flush this open file to disk before anything that is written or renamed later.

    `fsync` of macOS leaves the order to the drive, so a power cut could keep a rename and lose the
    contents. A barrier keeps the order, and takes a tenth of the time of waiting for the drive
    (`man 2 fcntl` on macOS).
    """
    if platform == "darwin":
        try:
            control(descriptor, _BARRIER)
        except OSError:  # A file system without it, such as SMB.
            pass
        else:
            return
    os.fsync(descriptor)


def read_private(path: AnyPath) -> bytes:
    """Return the contents of the file *path*, provided that no other user can have written it.

    Raises:
        PermissionError: It belongs to another user, or others may write to it.
        FileNotFoundError: It does not exist.
    """
    # Do not wait for a writer: another user may have put a FIFO there.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or others_may_write(found):
            raise PermissionError(errno.EPERM, "Another user may have written it", os.fspath(path))
        return stream.read()


def others_may_write(found: os.stat_result) -> bool:
    """Return whether users other than this one and root may write to the file or folder *found*."""
    return found.st_uid not in (os.geteuid(), 0) or bool(found.st_mode & 0o022)


def _restore(path: AnyPath | int, mode: int) -> None:
    """Restore the user's rights on the new *path* (or descriptor), if an unusual umask removed them."""
    if os.stat(path).st_mode & mode != mode:  # noqa: PTH116 - also of descriptors
        os.chmod(path, mode)  # noqa: PTH101
