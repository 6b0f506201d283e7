"""Outages of a store: one time limit for all calls and threads of an operation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

_SHORTEST: Final = 0.5
"""The shortest timeout of an attempt, in seconds: with less, none could succeed."""
_LOOK: Final = 0.25
"""Seconds between checks whether something must be reported."""


@dataclass
class _Attempt:
    where: str
    moved: Callable[[], int]
    reached: int
    since: float


class OutageLimit:
    """End the wait for a store *seconds* after its last response, for all calls together.

    Without a limit each call waits on its own, and the waits add up. A success in any thread restarts
    the time. After *quiet* seconds without a success, *report* is called once with a sentence, even
    while an attempt hangs.
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
        self._attempts: dict[int, _Attempt] = {}
        self._text = ""
        self._reported = False
        self._watched = False
        self._over = threading.Event()

    @property
    def left(self) -> float:
        """Seconds left: all of them if nothing has failed."""
        since = self._since
        return self.seconds if since is None else since + self.seconds - self.clock()

    @property
    def lasted(self) -> float:
        """Seconds since the first of the failures; 0 if nothing has failed."""
        since = self._since
        return 0.0 if since is None else self.clock() - since

    @property
    def reached(self) -> bool:
        """Whether the time is up, so that nothing may be retried."""
        return self.last is not None and self.left <= 0

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
            self._text = ""

    def explain(self, text: str) -> None:
        """Set the sentence about the last failure, and report it if it is time."""
        self._text = text
        self.look()

    def _report_once(self, text: str) -> None:
        with self._lock:
            reported, self._reported = self._reported, True
        if not reported:
            with suppress(Exception):  # A report must not end the wait.
                self._report(text)

    @contextmanager
    def attempt(self, where: str, moved: Callable[[], int]) -> Iterator[float]:
        """Watch an attempt at *where*; yield the time of its start. It makes progress if *moved()* changes."""
        began = self.clock()
        attempt = _Attempt(where, moved, moved(), began)
        if _limit.get() is self:
            self._watch()
        self._attempts[id(attempt)] = attempt
        try:
            yield began
        finally:
            del self._attempts[id(attempt)]

    def end(self) -> None:
        """Stop watching."""
        self._over.set()

    def _watch(self) -> None:
        if self._quiet == inf:  # Nothing is to be reported.
            return
        with self._lock:
            watched, self._watched = self._watched, True
        if not watched:
            threading.Thread(target=self._keep_checking, name="kinetic-outage", daemon=True).start()

    def _keep_checking(self) -> None:
        while not self._over.wait(_LOOK):
            self.look()

    def look(self) -> None:
        """Report a failure that has lasted for too long, or an attempt that makes no progress."""
        now, since, text = self.clock(), self._since, self._text
        if since is not None and text and now - since >= self._quiet:
            self._report_once(text)
        for attempt in list(self._attempts.values()):
            moved = attempt.moved()
            if moved != attempt.reached:
                attempt.reached, attempt.since = moved, now
            elif now - attempt.since >= self._quiet:
                limit = "" if self.seconds == inf else f" for up to {self.seconds:.0f} s"
                self._report_once(
                    f"{attempt.where} has not responded for {now - attempt.since:.0f} s. Waiting{limit}."
                )


_limit: ContextVar[OutageLimit | None] = ContextVar("kinetic_outage_limit", default=None)


def current_limit() -> OutageLimit | None:
    """Return the limit of the operation that this thread works for, or None."""
    return _limit.get()


@contextmanager
def limited(limit: OutageLimit) -> Iterator[None]:
    """Apply *limit* to the block: in this thread and in the calls that it submits to others."""
    before = _limit.set(limit)
    try:
        yield
    finally:
        limit.end()
        _limit.reset(before)


@contextmanager
def limited_look(seconds: float, report: Callable[[str], object]) -> Iterator[None]:
    """Limit the block to *seconds*, unless it is part of an operation that has a limit."""
    if _limit.get() is not None:
        yield
        return
    with limited(OutageLimit(seconds, report=report)):
        yield
