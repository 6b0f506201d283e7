"""Signals of this process, through a self-pipe: one `select` waits for signals and for all other input."""

from __future__ import annotations

import os
import select
import signal

_STOP = (signal.SIGTERM, signal.SIGINT)
_LONGEST = 86400.0
"""Seconds of one `select`, which does not wait for ever."""


class SelfPipe:
    """A pipe that becomes readable when a child ends or a signal to stop arrives."""

    def __init__(self) -> None:
        self.fd, write_end = os.pipe()
        self.terminated = False
        """Whether SIGTERM or SIGINT came."""
        self.cancelled = False
        """Whether what this process runs now is no longer wanted; a worker of a batch sets it."""
        for end in (self.fd, write_end):
            os.set_blocking(end, False)
        # A full pipe is readable as well.
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_STOP):
            # The handler does nothing, but without one no byte is written.
            signal.signal(number, lambda *_: None)

    @property
    def stop_requested(self) -> bool:
        """Whether to stop."""
        return self.terminated or self.cancelled

    def read(self) -> None:
        """Empty the pipe; set `terminated` if it contains SIGTERM or SIGINT."""
        while True:
            try:
                numbers = os.read(self.fd, 4096)
            except BlockingIOError:
                return
            self.terminated = self.terminated or any(stop in numbers for stop in _STOP)

    def wait(self, seconds: float) -> bool:
        """Wait for *seconds*, which may be infinite, or until a stop is requested; return whether one is."""
        import time

        until = time.monotonic() + seconds
        self.read()
        while not self.stop_requested and (left := until - time.monotonic()) > 0:
            select.select([self.fd], [], [], min(left, _LONGEST))
            self.read()
        return self.stop_requested
