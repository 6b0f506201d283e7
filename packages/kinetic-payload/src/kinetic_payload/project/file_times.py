"""`FileTimes`: whether a file's times show every later change of its contents.

Linux changes the times of a file that is written through a shared memory map (`numpy.memmap`) only
when the first write after a writeback makes a page dirty: what is written to that page until the next
writeback leaves no trace. So a file that is mapped is synced before it is read. Measured on ext4 and
on overlay: after `fsync`, `fdatasync`, `msync` or `os.sync` by any process, the next write through a
map changes the times. On tmpfs nothing makes them reliable.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

_RELIABLE: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "apfs", "hfs"}
)
"""Local file systems that notice writes through maps. Not tmpfs, network file systems, FUSE, FAT."""
_SHARED: Final = re.compile(rb"^\S+ ...s \S+ \S+ (\d+) +(/.*)$", re.MULTILINE)
"""A line of `/proc/PID/maps` about a shared map of a file: its inode and its path."""


class Maps(NamedTuple):
    """The files that processes map as shared memory, and possibly other files."""

    inodes: frozenset[int]
    names: frozenset[bytes]
    """Last parts of paths. An overlay may show another inode in a map than `stat` does."""

    def may_hold(self, path: str | os.PathLike[str], status: os.stat_result) -> bool:
        """Return whether the file *path* with *status* may be mapped."""
        return status.st_ino in self.inodes or os.path.basename(os.fsencode(path)) in self.names  # noqa: PTH119


class FileTimes:
    """Decides which files have reliable times, given the maps at its creation. Safe for use in any thread.

    It cannot see maps in processes of other users or of other containers and, on macOS, in any process.
    """

    def __init__(self, file_system: Callable[[str, int], str | None] | None = None) -> None:
        self._file_system = file_system or _file_system_of
        self._reliable: dict[int, bool] = {}
        self.looked_ns = time.time_ns()
        """The clock before the maps were read. Only file times before it are reliable: a map that is made
        later may change the times before the file is read, and then not again."""
        self._maps = shared_maps()

    def settle(self, descriptor: int, path: str | os.PathLike[str]) -> bool:
        """Make every later change of the open file show in its times; return whether that is certain.

        Call this before the file is read.
        """
        status = os.fstat(descriptor)
        device = status.st_dev
        if device not in self._reliable:
            kind = self._file_system(os.path.realpath(path), device)
            self._reliable[device] = kind in _RELIABLE
        if not self._reliable[device]:
            return False
        if sys.platform != "linux":
            return True
        if self._maps is None:
            return False
        if self._maps.may_hold(path, status):
            try:
                os.fsync(descriptor)
            except OSError:
                return False
        return True


def shared_maps() -> Maps | None:
    """Return the files that processes of this user map as shared memory; None if `/proc` cannot be read.

    This takes about 50 µs per process. A map that is made later changes the times with its first write.
    """
    inodes: set[int] = set()
    names: set[bytes] = set()
    user = os.geteuid()
    try:
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
        own = _read("/proc/self/maps")
    except OSError:
        return None
    found = [own]
    for process in processes:
        try:
            if os.stat(f"/proc/{process}").st_uid == user:  # noqa: PTH116
                found.append(_read(f"/proc/{process}/maps"))
        except OSError:
            continue  # It has ended, or is not readable.
    for maps in found:
        for inode, path in _SHARED.findall(maps):
            inodes.add(int(inode))
            names.add(path.rpartition(b"/")[2])
    return Maps(frozenset(inodes), frozenset(names))


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:  # noqa: PTH123
        return stream.read()


def _file_system_of(path: str, device: int) -> str | None:
    """Return the type of the file system that holds the real *path*; None if it is not known."""
    if sys.platform == "darwin":
        return _darwin_type(path)
    try:
        return linux_type(path, device, _read("/proc/self/mountinfo"))
    except OSError:
        return None


class _Mount(NamedTuple):
    device: int
    point: bytes
    kind: str
    options: bytes


def linux_type(path: str, device: int, mountinfo: bytes) -> str | None:
    """Return the type of the file system of *path*; of an overlay, that of its upper layer.

    Args:
        mountinfo: The contents of `/proc/self/mountinfo`.
    """
    mounts = [_mount(line) for line in mountinfo.splitlines()]
    # Later mounts hide earlier ones. Subvolumes and layers have devices that are not in the list.
    here = [mount for mount in mounts if mount.device == device]
    found = here[-1] if here else _nearest(mounts, os.fsencode(path))
    if found is None or found.kind != "overlay":
        return found.kind if found else None
    upper = re.search(rb"(?:^|,)upperdir=([^,]+)", found.options)
    below = _nearest(mounts, _unescaped(upper[1])) if upper else None
    # In a container the upper layer is not visible: its path leads back to the overlay.
    return "ext4" if below is None or below.kind == "overlay" else below.kind


def _mount(line: bytes) -> _Mount:
    before, _, after = line.partition(b" - ")
    fields = before.split(b" ")
    major, _, minor = fields[2].partition(b":")
    kind, _, options = after.split(b" ", 2)
    return _Mount(os.makedev(int(major), int(minor)), _unescaped(fields[4]), kind.decode(), options)


def _unescaped(text: bytes) -> bytes:
    return re.sub(rb"\\(\d{3})", lambda match: bytes([int(match[1], 8)]), text)


def _nearest(mounts: list[_Mount], path: bytes) -> _Mount | None:
    found = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip(b"/") + b"/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found


def _darwin_type(path: str) -> str | None:
    """Call `statfs`, which Python does not provide."""
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    # On Intel, the plain symbol uses the older structure, without 64-bit inodes.
    statfs = getattr(system, "statfs$INODE64", None) or system.statfs
    buffer = ctypes.create_string_buffer(4096)
    if statfs(os.fsencode(path), buffer) != 0:
        return None
    return buffer.raw[72:88].partition(b"\0")[0].decode("ascii", "replace")
