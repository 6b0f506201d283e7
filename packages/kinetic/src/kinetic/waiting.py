"""Deadlines, backoff, pauses: the one place that sleeps."""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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


class Waker:
    """Ends a pause at once, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = True
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    @property
    def fd(self) -> int:
        """What can be read from as soon as somebody woke us; for `poll`."""
        return self._reader

    def wake(self) -> None:
        """End the pause under way, or the next one."""
        with self._lock, suppress(BlockingIOError):  # Full: there is enough to wake up for.
            if self._open:
                os.write(self._writer, b"\0")

    def woken(self) -> bool:
        """Return whether somebody woke us since this was asked last."""
        try:
            return bool(os.read(self._reader, 1 << 16))
        except BlockingIOError:
            return False

    def pause(self, seconds: float) -> None:
        """Sleep for *seconds*, or until somebody wakes us."""
        poll = select.poll()  # `select` cannot take a descriptor above 1023.
        poll.register(self._reader, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)

    def close(self) -> None:
        """Let go of it; to wake it afterwards does nothing."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._reader)
                os.close(self._writer)
