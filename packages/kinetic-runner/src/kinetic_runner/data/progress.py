"""Log the progress of a job's transfers, all together, as plain lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from kinetic_payload.progress import Advance, Progress

FIRST: Final = 2.0
"""Seconds until the first line."""
AGAIN: Final = 20.0
"""Seconds between lines."""


class TransferProgress:
    """`TrackProgress` for several transfers at once, as one line for all of them.

    Short transfers print nothing.
    """

    def __init__(
        self, doing: str, *, print_line: Callable[[str], None] = lambda text: log_line(text),
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._doing = doing
        self._print_line = print_line
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = Progress(doing, 0, clock=clock)
        self._next = clock() + FIRST
        self._begun = 0

    @contextmanager
    def __call__(self, doing: str, total: int | None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        """Report on one more transfer."""
        with self._lock:
            self._begun += 1
            known = self._progress.total
            # A transfer of unknown size makes the total unknown.
            self._progress.total = None if known is None or total is None else known + total
        yield self._advance

    def _advance(self, size: int) -> None:
        self._progress.advance(size)
        now = self._clock()
        if now < self._next:
            return
        with self._lock:
            if now < self._next:
                return
            self._next = now + AGAIN
        self._print_line(self._progress.text)

    def finish(self) -> None:
        """Print how long the transfers took, unless they were short."""
        if self._begun and self._progress.seconds >= FIRST:
            self._print_line(self._progress.summary)


def log_line(text: str) -> None:
    """Write *text* to the job's log, as a line of Kinetic's own."""
    sys.stderr.write(f"[kinetic] {text}\n")
    sys.stderr.flush()
