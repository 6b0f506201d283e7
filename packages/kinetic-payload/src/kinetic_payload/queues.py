"""A queue between threads whose `get` ends when its time is over."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from queue import Empty
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class TimedQueue(Generic[T]):
    """Items that threads pass on, in order. Any number of threads may put and get.

    `queue.SimpleQueue` of Python 3.11 waits for good if the time ends while another thread takes the item for
    which it was woken: it then passes a negative time to the lock, which means no limit. An interrupted
    `queue.Queue` may leave its lock locked (python/cpython#148874); here each wait has a lock of its own.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiting: deque[threading.Lock] = deque()

    def put(self, item: T) -> None:
        """Add *item*."""
        self._items.append(item)
        # All of them: one that is about to give up must not be the only one that is woken.
        with suppress(IndexError):
            while True:
                self._waiting.popleft().release()

    def get(self, timeout: float) -> T:
        """Remove the next item and return it.

        Raises:
            Empty: None arrived within *timeout* seconds.
        """
        until = monotonic() + timeout
        while True:
            turn = threading.Lock()
            turn.acquire()
            # Before the look, so that what is put after it ends the wait.
            self._waiting.append(turn)
            try:
                with suppress(IndexError):
                    return self._items.popleft()
                left = until - monotonic()
                if left <= 0:
                    raise Empty
                turn.acquire(timeout=left)
            finally:
                with suppress(ValueError):  # It was woken.
                    self._waiting.remove(turn)
