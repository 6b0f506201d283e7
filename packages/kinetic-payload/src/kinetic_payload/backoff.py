"""Pauses between retries."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Exponential backoff: delays grow from *first* to *limit*, each shortened by random jitter.

    Jitter keeps many clients that failed together from retrying together. It only shortens a delay: by up to
    this share of it.
    """

    def __init__(
        self,
        first: float = 0.2,
        limit: float = 20.0,
        *,
        jitter: float = 0.5,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._limit = limit
        self._jitter = jitter
        self._rand = rand
        self._next = first

    def next(self) -> float:
        """Return the delay before the next attempt."""
        delay = min(self._next, self._limit)
        self._next = min(self._next * 2, self._limit)
        return delay * (1 - self._jitter * self._rand())

    def reset(self) -> None:
        """Start again at the first delay, after a success."""
        self._next = self._first
