"""Signals of this process as bytes in a pipe, so that one `select` waits for everything."""

from __future__ import annotations

import os
import select
import signal

_STOP = (signal.SIGTERM, signal.SIGINT)


class Bell:
    """Rings when a child ends and when this process is told to stop."""

    def __init__(self) -> None:
        self.fd, write_end = os.pipe()
        self.stop_asked = False
        for end in (self.fd, write_end):
            os.set_blocking(end, False)
        # A full pipe has rung already.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_STOP):
            # The handler does nothing, but without one no byte is written.
            signal.signal(number, _heard)

    def listen(self) -> None:
        """Take in what rang; `stop_asked` says whether it was a wish to stop."""
        while True:
            try:
                rung = os.read(self.fd, 4096)
            except BlockingIOError:
                return
            self.stop_asked = self.stop_asked or any(number in rung for number in _STOP)

    def pause(self, seconds: float) -> bool:
        """Wait that long, or until this process is told to stop; return whether it was."""
        import time

        until = time.monotonic() + seconds
        self.listen()
        while not self.stop_asked and (left := until - time.monotonic()) > 0:
            select.select([self.fd], [], [], left)
            self.listen()
        return self.stop_asked


def _heard(_number: int, _frame: object) -> None:
    return
