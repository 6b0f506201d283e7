"""Locks between threads and processes over files of one folder.

A lock of `fcntl.lockf` belongs to a process: a second thread gets it, too, and closing *any* descriptor of
the file drops it. So a thread first takes an in-process lock for the same file, and opens and closes the
file while it holds that. A fork starts with fresh in-process locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kinetic_payload.files.private import open_private

_PAUSE: Final = 0.01

_guard = threading.Lock()
_locks: dict[tuple[int, int, str], threading.Lock] = {}


def _after_fork() -> None:
    # The thread that held a lock at the fork does not exist in the child.
    global _guard
    _guard = threading.Lock()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def locked(path: str, *, waiting: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Hold the lock of the file *path*, which is created if missing; yield its descriptor.

    *waiting* is called once if another thread or process holds it.
    """
    # Identify the folder by device and inode: two in-process locks for two paths of one file would not exclude
    # each other.
    folder, name = os.path.split(path)
    status = os.stat(folder)  # noqa: PTH116 - hot
    with _guard:
        lock = _locks.setdefault((status.st_dev, status.st_ino, name), threading.Lock())
    busy = lock.locked()
    if busy:
        waiting()
    with lock:
        fd = _open_locked(path, (lambda: None) if busy else waiting)
        try:
            yield fd
        finally:
            os.close(fd)


def _open_locked(path: str, waiting: Callable[[], object]) -> int:
    while True:
        fd = open_private(path, os.O_RDWR | os.O_CREAT)
        try:
            if not try_lock(fd):
                waiting()
                _wait_for_lock(fd)
            if os.fstat(fd).st_nlink:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # The file was deleted meanwhile: other processes lock a new one by now.


def _wait_for_lock(fd: int) -> None:
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)
        except OSError as error:
            # The kernel looks at processes, not at threads: two processes may wait for each other's locks in
            # threads that hold none. Locks are nested in one order only, so it is no deadlock of threads.
            if error.errno != errno.EDEADLK:
                raise
            threading.Event().wait(_PAUSE)
        else:
            return


def try_lock(fd: int) -> bool:
    """Lock the open file *fd* unless another process has locked it; return whether it is locked now."""
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
