"""Outages of a store: one time limit for all calls and threads of an operation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from math import inf
from time import monotonic
from typing import Final, TypeVar

_SHORTEST: Final = 0.5
"""The shortest timeout of an attempt, in seconds: with less, none could succeed."""
_REPORT_EVERY: Final = 60.0

T = TypeVar("T")


class OutageLimit:
    """End the wait for a store *seconds* after its last response, for all calls of `store.limited(limit)` together.

    Without a limit each call waits on its own, and the waits add up. A success in any thread restarts
    the time. After *quiet* seconds without a success, *report* is called with a sentence, at most once a
    minute.
    """

    def __init__(
        self,
        seconds: float,
        *,
        report: Callable[[str], object] = lambda _: None,
        quiet: float = 3.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.seconds = seconds
        self.clock = clock
        self.last: Exception | None = None
        """The last error, if nothing has succeeded since."""
        self.sent = False
        """Whether any request may have reached the store."""
        self._report = report
        self._quiet = quiet
        self._lock = threading.Lock()
        self._since: float | None = None
        self._reported = -inf
        self._attempts: list[tuple[Callable[[], int], int]] = []
        """The progress of each attempt that runs, and what it was at its beginning."""

    @contextmanager
    def attempt(self, progress: Callable[[], int]) -> Iterator[None]:
        """Report no outage in the block after *progress* has grown: a transfer that then stalls fails by itself."""
        running = progress, progress()
        with self._lock:
            self._attempts.append(running)
        try:
            yield
        finally:
            with self._lock:
                self._attempts.remove(running)

    @property
    def left(self) -> float:
        """Seconds left: all of them if nothing has failed."""
        since = self._since
        return self.seconds if since is None else since + self.seconds - self.clock()

    def at_most(self, seconds: float, *, share: float = 1.0) -> float:
        """Return the timeout of an attempt: *seconds*, or *share* of the time left if that is less."""
        return min(seconds, max(self.left * share, _SHORTEST))

    def failed(self, since: float, error: Exception) -> None:
        """Note that an attempt that began at *since* failed with *error*."""
        with self._lock:
            self.last = error
            self._since = since if self._since is None else min(self._since, since)

    def worked(self) -> None:
        """Note that the store responded."""
        with self._lock:
            self.sent = True
            self._since = self.last = None

    def explain(self, text: str) -> None:
        """Report *text*, a sentence about the last failure, if it is time, and no transfer progresses."""
        with self._lock:
            now, since = self.clock(), self._since
            if any(progress() > before for progress, before in self._attempts):
                return
            if since is None or now - since < self._quiet or now - self._reported < _REPORT_EVERY:
                return
            self._reported = now
        with suppress(Exception):  # A report must not end the wait.
            self._report(text)


def changed_copy(whole: T, **attributes: object) -> T:
    """Return a copy of *whole* with other *attributes*: it shares all else with it."""
    found = copy(whole)
    vars(found).update(attributes)
    return found
