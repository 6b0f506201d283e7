"""Whether a supervisor lives, asked in ways that neither a reused pid nor a reboot can fool.

The supervisor inherits the write end of the FIFO `alive` at its birth: who reads it gets "nothing
yet" while it lives and the end of the file afterwards. A fork of the submitting process in the
moment of that birth could hold a copy; so the supervisor also locks a file, and locks are not
inherited.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from contextlib import suppress

from kinetic.local.paths import Home, JobFolder
from kinetic_payload.private_files import make_fifo

TYPE_CHECKING = False
if TYPE_CHECKING:  # Supervisors import this, and `typing` takes longer than all the rest of it.
    from typing import Final

_FIRST_LOOK: Final = 0.002
_LAST_LOOK: Final = 0.05
"""Seconds between two looks for the end of a supervisor, at first and later."""

CANCEL: Final = b"c"
"""What is written into the FIFO `control` to have a job stopped."""


class Pipes:
    """The ends of a new job's FIFOs, held by the submitting process until the supervisor has them."""

    def __init__(self, folder: JobFolder) -> None:
        self.fds: list[int] = []
        try:
            for path in (folder.alive, folder.control):
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
        """Let go of them."""
        while self.fds:
            os.close(self.fds.pop())


def _open(path: str, flags: int) -> int:
    """Open a FIFO; never as a standard descriptor, which a submitter may have closed.

    They are handed to the supervisor by number, and it has files of its own there.
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
    fd = _open_alive(folder)
    if fd is None:
        return False
    try:
        return not _ended(fd) and not _unlocked(folder)
    finally:
        os.close(fd)


def is_announced(home: Home, job_id: str) -> bool:
    """Return whether the process that submits the job lives and is about to start it."""
    try:
        names = os.listdir(home.jobs)  # noqa: PTH208 - light
    except FileNotFoundError:
        return False
    mine = f".{job_id}."
    return any(is_alive(JobFolder(f"{home.jobs}/{n}")) for n in names if n.startswith(mine))


def wait_for_death(folder: JobFolder, timeout: float) -> bool:
    """Wait at most *timeout* seconds until the supervisor is gone; return whether it is.

    Its end is looked for at short intervals as well: by xnu's source macOS does not wake every reader
    of a FIFO when the last writer is gone, and nobody is woken while a fork of the submitter lives.
    """
    fd = _open_alive(folder)
    if fd is None:
        return True
    try:
        poll = select.poll()  # `select` cannot take a descriptor above 1023.
        poll.register(fd, select.POLLIN | select.POLLHUP)
        deadline = time.monotonic() + timeout
        pause = _FIRST_LOOK
        while not (_ended(fd) or _unlocked(folder)):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if poll.poll(int(min(left, pause) * 1000 + 0.999)) and not _ended(fd):
                select.select([], [], [], pause)  # Whatever it was, it is not asked again at once.
            pause = min(1.5 * pause, _LAST_LOOK)
        return True
    finally:
        os.close(fd)


def request_cancel(folder: JobFolder) -> None:
    """Ask the supervisor to stop its job; nothing happens if it is gone."""
    with suppress(OSError):  # ENXIO: nobody reads any more; ENOENT: all of it was removed.
        fd = os.open(folder.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, CANCEL)
        finally:
            os.close(fd)


def _open_alive(folder: JobFolder) -> int | None:
    try:
        return os.open(folder.alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _ended(fd: int) -> bool:
    try:
        return os.read(fd, 1) == b""
    except BlockingIOError:
        return False


def _unlocked(folder: JobFolder) -> bool:
    """Return whether a supervisor had begun its work and no longer holds its lock."""
    if not os.path.exists(folder.state):  # noqa: PTH110 - asked often
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
