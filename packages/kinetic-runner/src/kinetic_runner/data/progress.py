"""How far the job's transfers are, together, as plain lines in its log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from kinetic_payload.progress import Advance, Progress

FIRST: Final = 2.0
"""Seconds after which something is said at all."""
AGAIN: Final = 20.0
"""Seconds between lines."""


class Transfers:
    """`TrackProgress` for several downloads at once: one line reports on all of them.

    What is over in a moment is not mentioned.
    """

    def __init__(
        self, doing: str, *, say: Callable[[str], None] = lambda text: log(text),
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._doing = doing
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._progress = Progress(doing, 0, clock=clock)
        self._next = clock() + FIRST
        self._begun = 0

    @contextmanager
    def __call__(self, doing: str, total: int | None) -> Iterator[Advance]:  # noqa: ARG002 - the protocol's
        """Begin to report on one transfer more."""
        with self._lock:
            self._begun += 1
            known = self._progress.total
            # One of unknown size makes the sum unknown.
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
        self._say(self._progress.text)

    def finish(self) -> None:
        """Say what it took, if that was worth a line."""
        if self._begun and self._progress.seconds >= FIRST:
            self._say(self._progress.summary)


def log(text: str) -> None:
    """Write *text* as a line of ours into the job's log."""
    sys.stderr.write(f"[kinetic] {text}\n")
    sys.stderr.flush()
