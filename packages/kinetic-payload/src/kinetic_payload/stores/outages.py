"""Outages: how long all calls and threads of one operation wait together for a store."""

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
"""Seconds that any attempt gets: with less, none could succeed."""
_LOOK: Final = 0.25
"""Seconds between looks whether something has to be reported."""


@dataclass
class _Attempt:
    where: str
    moved: Callable[[], int]
    reached: int
    since: float


class OutageLimit:
    """Ends the wait for a store *seconds* after it was heard of last, whichever calls wait.

    Without a limit each call waits on its own, and one after the other adds up. Whatever works, in any
    thread, begins the count anew. *report* is called with a sentence, once, after *quiet* seconds in
    vain, also while an attempt hangs.
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
        """What failed last, if nothing has worked since."""
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
        """Seconds that are left: all of them where nothing has failed."""
        since = self._since
        return self.seconds if since is None else since + self.seconds - self.clock()

    @property
    def reached(self) -> bool:
        """Whether it is over, so that nothing more is to be tried."""
        return self.last is not None and self.left <= 0

    def at_most(self, seconds: float, *, share: float = 1.0) -> float:
        """Return how long an attempt may hang: *seconds*, or that *share* of what is left."""
        return min(seconds, max(self.left * share, _SHORTEST))

    def failed(self, since: float, error: Exception) -> None:
        """Note that what was tried from *since* on failed."""
        with self._lock:
            self.last = error
            self._since = since if self._since is None else min(self._since, since)

    def worked(self) -> None:
        """Note that the store was heard of."""
        with self._lock:
            self.sent = True
            self._since = self.last = None
            self._text = ""

    def explain(self, text: str) -> None:
        """Take the sentence that says what failed last, to be reported when it is time."""
        self._text = text
        self.look()

    def _tell(self, text: str) -> None:
        with self._lock:
            reported, self._reported = self._reported, True
        if not reported:
            with suppress(Exception):  # What is said of a wait must not end it.
                self._report(text)

    @contextmanager
    def attempt(self, where: str, moved: Callable[[], int]) -> Iterator[float]:
        """Watch an attempt at *where* while it lasts; give the time. Where *moved* changes, it works."""
        began = self.clock()
        made = _Attempt(where, moved, moved(), began)
        if _limit.get() is self:
            self._watch()
        self._attempts[id(made)] = made
        try:
            yield began
        finally:
            del self._attempts[id(made)]

    def end(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        if self._quiet == inf:  # Nothing is to be reported.
            return
        with self._lock:
            watched, self._watched = self._watched, True
        if not watched:
            threading.Thread(target=self._keep_looking, name="kinetic-outage", daemon=True).start()

    def _keep_looking(self) -> None:
        while not self._over.wait(_LOOK):
            self.look()

    def look(self) -> None:
        """Report what has failed for too long, or an attempt of which nothing has come."""
        now, since, text = self.clock(), self._since, self._text
        if since is not None and text and now - since >= self._quiet:
            self._tell(text)
        for made in list(self._attempts.values()):
            moved = made.moved()
            if moved != made.reached:
                made.reached, made.since = moved, now
            elif now - made.since >= self._quiet:
                self._tell(
                    f"{made.where} has not answered for {now - made.since:.0f} s. Waiting for up to "
                    f"{self.seconds:.0f} s."
                )


_limit: ContextVar[OutageLimit | None] = ContextVar("kinetic_outage_limit", default=None)


def current_limit() -> OutageLimit | None:
    """Return the limit of the operation that this thread works for, if it has one."""
    return _limit.get()


@contextmanager
def limited(limit: OutageLimit) -> Iterator[None]:
    """Hold what is done in the block to *limit*: by this thread, and by calls that it submits to others."""
    before = _limit.set(limit)
    try:
        yield
    finally:
        limit.end()
        _limit.reset(before)


@contextmanager
def limited_look(seconds: float, report: Callable[[str], object]) -> Iterator[None]:
    """Hold the block to *seconds*, unless it is a part of something that has a limit."""
    if _limit.get() is not None:
        yield
        return
    with limited(OutageLimit(seconds, report=report)):
        yield
