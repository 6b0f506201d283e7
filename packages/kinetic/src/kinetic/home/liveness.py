"""Check whether a supervisor or a runner lives, independently of reused process ids and of reboots.

The supervisor inherits the write end of the FIFO `alive` when it is started: a read returns "nothing yet"
while it lives and the end of the file afterwards. A process that the client forks at that moment could
hold a copy; so the supervisor also locks a file: locks are not inherited.

A runner whose supervisor died may still report how the job ended. Every runner inherits the write end
of another FIFO, the one of its attempt, and keeps it until it ends; the user's processes do not get it.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from contextlib import suppress

from kinetic.home.paths import Home, JobFolder
from kinetic_payload.files.private import make_fifo

TYPE_CHECKING = False
# Supervisors import this module, and `typing` takes longer than all its other imports.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.05
"""Seconds between two checks for the end of a supervisor, at first and later."""

CANCEL: Final = b"c"
"""The byte that a client writes to the FIFO `control` to stop a job."""


class Pipes:
    """The ends of a new job's FIFOs, held by the submitting process until the supervisor has them."""

    def __init__(self, folder: JobFolder) -> None:
        self.fds: list[int] = []
        try:
            for path in (folder.alive, folder.control):
                if not os.path.exists(path):  # noqa: PTH110 - that of a job that has waited
                    make_fifo(path)
                # A writer can open a FIFO without waiting only when it has a reader.
                self.fds.append(_open(path, os.O_RDONLY))
                self.fds.append(_open(path, os.O_WRONLY))
        except BaseException:
            self.close()
            raise

    @property
    def for_supervisor(self) -> tuple[int, int, int]:
        """The write end of `alive`, both ends of `control`."""
        return self.fds[1], self.fds[2], self.fds[3]

    def close(self) -> None:
        """Close the ends that are still open."""
        while self.fds:
            os.close(self.fds.pop())


def _open(path: str, flags: int) -> int:
    """Open a FIFO with a descriptor above 2, even if the client has closed its standard descriptors.

    The supervisor inherits the descriptor by its number, and has other files as standard descriptors.
    """
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def is_alive(folder: JobFolder) -> bool:
    """Return whether the job's supervisor lives, or is being started right now."""
    fd = _open_fifo(folder.alive)
    if fd is None:
        return False
    try:
        return not _is_at_eof(fd) and not _is_unlocked(folder)
    finally:
        os.close(fd)


def is_reporting(folder: JobFolder) -> bool:
    """Return whether a runner of the job lives.

    Call it once `is_alive` returned False: from then on no further runner is started.
    """
    fd = _open_runners(folder)
    if fd is None:
        return False
    os.close(fd)
    return True


def open_life(folder: JobFolder) -> int | None:
    """Open the FIFO that ends with the job's supervisor or, after that, with its runners; None if none of them lives."""
    return _open_fifo(folder.alive) if is_alive(folder) else _open_runners(folder)


def is_announced(home: Home, job_id: str) -> bool:
    """Return whether the process that submits the job lives and is about to start it."""
    return any(is_alive(place) for place in _staged_folders(home, job_id))


def was_announced(home: Home, job_id: str) -> bool:
    """Return whether a process was killed when it was about to start the job, which has no folder."""
    places = _staged_folders(home, job_id)
    # While a job's folder is being removed, it has the name of a staged folder.
    return bool(places) and not any(
        is_alive(place) or os.path.exists(place.supervisor_log)  # noqa: PTH110 - called often
        for place in places
    )


def _staged_folders(home: Home, job_id: str) -> list[JobFolder]:
    try:
        names = os.listdir(home.jobs)  # noqa: PTH208 - light
    except FileNotFoundError:
        return []
    prefix = f".{job_id}."
    return [JobFolder(f"{home.jobs}/{name}") for name in names if name.startswith(prefix)]


def wait_for_death(
    folder: JobFolder, timeout: float, *, given_up: Callable[[], bool] = lambda: False
) -> bool:
    """Wait at most *timeout* seconds until the supervisor is gone; return whether it is.

    *given_up* is called in short intervals; the wait ends when it returns True.
    """
    fd = _open_fifo(folder.alive)
    if fd is None:
        return True
    try:
        return _wait_for_eof(fd, timeout, or_else=lambda: _is_unlocked(folder), given_up=given_up)
    finally:
        os.close(fd)


def wait_for_end(
    folder: JobFolder, timeout: float, *, given_up: Callable[[], bool] = lambda: False
) -> bool:
    """Wait like `wait_for_death`; if the supervisor is gone already, wait for the end of its runners."""
    if is_alive(folder):
        wait_for_death(folder, timeout, given_up=given_up)
        return not is_alive(folder) and not is_reporting(folder)
    fd = _open_runners(folder)
    if fd is None:
        return True
    try:
        return _wait_for_eof(fd, timeout, given_up=given_up) and not is_reporting(folder)
    finally:
        os.close(fd)


def request_cancel(folder: JobFolder) -> None:
    """Ask the supervisor to stop its job; do nothing if it is gone."""
    with suppress(OSError):  # ENXIO: there is no reader; ENOENT: the folder was removed.
        fd = os.open(folder.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, CANCEL)
        finally:
            os.close(fd)


def _open_runners(folder: JobFolder) -> int | None:
    """Open the FIFO of the attempt whose runners live; None if no runner lives."""
    number = 1
    while os.path.isdir(folder.attempt(number)):  # noqa: PTH112 - called often
        fd = _open_fifo(folder.runners(number))
        if fd is not None:
            if not _is_at_eof(fd):
                return fd
            os.close(fd)
        number += 1
    return None


def _open_fifo(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _wait_for_eof(
    fd: int,
    timeout: float,
    *,
    or_else: Callable[[], bool] = lambda: False,
    given_up: Callable[[], bool],
) -> bool:
    """Wait at most *timeout* seconds until a FIFO has no writer, or *or_else* returns True.

    Both are also checked in short intervals: by xnu's source, macOS does not wake every reader of a FIFO
    when the last writer is gone, and no reader is woken while a fork of the client holds it.
    """
    poll = select.poll()  # `select` cannot take a descriptor above 1023.
    poll.register(fd, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not (_is_at_eof(fd) or or_else()):
        left = deadline - time.monotonic()
        if left <= 0 or given_up():
            return False
        if poll.poll(int(min(left, pause) * 1000 + 0.999)) and not _is_at_eof(fd):
            select.select([], [], [], pause)  # Whatever woke it, do not check again at once.
        pause = min(1.5 * pause, _LONGEST_PAUSE)
    return True


def _is_at_eof(fd: int) -> bool:
    try:
        return os.read(fd, 1) == b""
    except BlockingIOError:
        return False


def _is_unlocked(folder: JobFolder) -> bool:
    """Return whether a supervisor had begun its work and no longer holds its lock."""
    if not os.path.exists(folder.state):  # noqa: PTH110 - called often
        return False
    try:
        fd = os.open(folder.lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True
