"""Deadlines, backoff, and the one place that sleeps."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]
"""Seconds that only ever grow."""


class Deadline:
    """A moment after which waiting is over; `Deadline(None)` never passes."""

    def __init__(self, seconds: float | None, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._at = None if seconds is None else clock() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self._at is not None and self._clock() >= self._at

    @property
    def remaining(self) -> float | None:
        """Seconds that are left, never below zero; None means without end."""
        return None if self._at is None else max(0.0, self._at - self._clock())

    def at_most(self, seconds: float) -> float:
        """Return *seconds*, or what is left if that is less."""
        left = self.remaining
        return seconds if left is None else min(seconds, left)


class Backoff:
    """Delays that grow from *first* to *limit*, each shortened at random.

    Jitter keeps many clients that failed together from coming back together.
    """

    def __init__(
        self,
        first: float = 0.2,
        limit: float = 20.0,
        *,
        factor: float = 2.0,
        jitter: float = 0.5,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._limit = limit
        self._factor = factor
        self._jitter = jitter
        self._rand = rand
        self._next = first

    def next(self) -> float:
        """Return how long to wait before the next try."""
        delay = min(self._next, self._limit)
        self._next = min(self._next * self._factor, self._limit)
        return delay * (1 - self._jitter * self._rand())

    def reset(self) -> None:
        """Begin at the first delay again: something worked."""
        self._next = self._first


_POLL_LEAST: Final = 0.002
_POLL_MOST: Final = 0.25
_POLL_SHARE: Final = 0.05


def poll_interval(elapsed: float) -> float:
    """Return how long to pause between two looks at something awaited for *elapsed* seconds.

    A twentieth of the time already spent: short waits end at once, long ones cost nothing.
    """
    return min(_POLL_MOST, max(_POLL_LEAST, _POLL_SHARE * elapsed))


def sleep(seconds: float) -> None:
    """Sleep; what sleeps elsewhere takes this as an argument."""
    if seconds > 0:
        time.sleep(seconds)  # noqa: TID251 - this is the place
