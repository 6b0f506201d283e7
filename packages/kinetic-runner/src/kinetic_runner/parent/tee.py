"""Copy the child's output to this process's standard output, the live log, without blocking."""

from __future__ import annotations

import errno
import os
import select
import stat
from time import monotonic
from typing import Final

from kinetic_payload.files.private import FULL_DISK

_MAX_WAITING: Final = 1024 * 1024
_ATOMIC: Final = 512
"""The minimum of PIPE_BUF in POSIX: a writable pipe accepts this many bytes on any system."""


class Tee:
    """Writes to *fd*, and never blocks on a slow reader."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._waiting = bytearray()
        # The descriptor is not made non-blocking: other processes share that setting.
        self._direct = stat.S_ISREG(os.fstat(fd).st_mode)
        self._atomic = max(_ATOMIC, getattr(select, "PIPE_BUF", _ATOMIC))
        self._broken = False

    @property
    def waiting(self) -> bool:
        """Whether something is left to write."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Whether so much is waiting that no more output should be read."""
        return len(self._waiting) >= _MAX_WAITING

    def write(self, data: bytes) -> None:
        """Write *data*, now or later. A closed reader is not an error: the stored log is complete."""
        if self._broken:
            return
        if self._direct:
            self._write(data)
            return
        self._waiting += data
        self.write_waiting()

    def write_waiting(self) -> None:
        """Write as much as the reader accepts now."""
        done = 0
        while done < len(self._waiting) and not self._broken:
            if not select.select([], [self.fd], [], 0)[1]:
                break
            done += self._write(self._waiting[done : done + self._atomic])
        del self._waiting[: len(self._waiting) if self._broken else done]

    def finish(self, seconds: float) -> None:
        """Write the waiting output; give up once the reader accepts nothing for *seconds*."""
        until = monotonic() + seconds
        while self._waiting and (left := until - monotonic()) > 0:
            select.select([], [self.fd], [], left)
            before = len(self._waiting)
            self.write_waiting()
            if len(self._waiting) < before:
                until = monotonic() + seconds

    def _write(self, data: bytes | bytearray) -> int:
        done, view = 0, memoryview(data)
        try:
            while done < len(view):
                done += os.write(self.fd, view[done:])
        except OSError as error:
            # A full disk may have room again later; a reader does not come back.
            self._broken = error.errno not in {*FULL_DISK, errno.EAGAIN}
            return len(view)
        return done
