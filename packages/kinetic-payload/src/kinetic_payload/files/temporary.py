"""Temporary files that are removed after their writer has ended, even if it was killed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO

from kinetic_payload.files.locks import try_lock
from kinetic_payload.files.private import open_private

_own_prefix = os.urandom(4).hex()
"""The prefix of the names of this process's temporary files."""


def _after_fork() -> None:
    global _own_prefix
    _own_prefix = os.urandom(4).hex()


os.register_at_fork(after_in_child=_after_fork)


class Temporary:
    """A new file in *folder*, locked while its writer runs and removed at the end of the block."""

    path: str
    fd: int
    stream: BinaryIO

    def __init__(self, folder: str) -> None:
        while True:
            self.path = f"{folder}/{_own_prefix}{os.urandom(8).hex()}"
            self.fd = open_private(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # Another process may have removed it as a leftover before it was locked.
            if try_lock(self.fd) and os.fstat(self.fd).st_nlink:
                break
            os.close(self.fd)
        self.stream = open(self.fd, "w+b")  # noqa: PTH123, SIM115 - closed by __exit__

    def date(self, *times: int) -> os.stat_result:
        """Set the modification time to the first of *times* that the file system stores without loss."""
        for nanoseconds in times:
            os.utime(self.fd, ns=(nanoseconds, nanoseconds))
            found = os.fstat(self.fd)
            if found.st_mtime_ns >= nanoseconds:
                break
        return found

    def __enter__(self) -> Temporary:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(FileNotFoundError):  # It was renamed.
            os.unlink(self.path)  # noqa: PTH108 - hot
        with suppress(OSError):  # The disk is full: that was reported, and the file is removed.
            self.stream.close()


def collect_leftovers(folder: str) -> None:
    """Remove the files in *folder* whose writers have ended."""
    for entry in os.listdir(folder):  # noqa: PTH208 - hot, mostly empty
        # Locks belong to a process: closing another descriptor of its own file would drop its lock.
        if entry.startswith(_own_prefix):
            continue
        path = f"{folder}/{entry}"
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if try_lock(fd):
                    os.unlink(path)  # noqa: PTH108
            finally:
                os.close(fd)
