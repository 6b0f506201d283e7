"""Wait for the events of a supervisor: ended children, requests of clients, signals."""

from __future__ import annotations

import os
import select
import signal

from kinetic.home.liveness import CANCEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    StopReason = Literal["cancelled", "terminated"]


class Events:
    """Waits for all events at once; records whether the job is to stop, and why."""

    stop: StopReason | None = None

    def __init__(self, control: int) -> None:
        self._control = control
        self._signals, wakeup = os.pipe()
        for fd in (self._signals, wakeup, control):
            os.set_blocking(fd, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            # A handler, because the user's processes would inherit SIG_IGN.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # The submitter may have blocked some.
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(control, select.POLLIN)

    def wait(self, timeout: float | None, readable: Sequence[int] = ()) -> None:
        """Return after an event, once a descriptor of *readable* can be read, or after *timeout* seconds."""
        for fd in readable:
            self._poll.register(fd, select.POLLIN)
        self._poll.poll(None if timeout is None else max(0, int(timeout * 1000 + 0.999)))
        for fd in readable:
            self._poll.unregister(fd)
        if signal.SIGTERM in _read(self._signals):
            self.stop = self.stop or "terminated"
        if CANCEL in _read(self._control):
            self.stop = self.stop or "cancelled"


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except BlockingIOError:
        return b""
