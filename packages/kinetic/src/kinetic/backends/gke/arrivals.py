"""Lines and events from several threads, in the order of their arrival."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, Generic, Self, TypeVar

Item = TypeVar("Item")

_MOST_WAITING: Final = 1000
"""Items that wait to be taken; then the threads that put them wait."""
_LOOK_AGAIN: Final = 0.5


class Arrivals(Generic[Item]):
    """A bounded queue, and the threads that fill it. Use it in a `with` block, which ends them.

    A thread that fails puts its exception, which `take` raises.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[Item | Exception] = queue.Queue(_MOST_WAITING)
        self._closed = threading.Event()
        self._at_close: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for end in self._at_close:
            end()

    @property
    def closed(self) -> bool:
        """Whether the block has ended."""
        return self._closed.is_set()

    def start(self, run: Callable[[], object], *, end: Callable[[], object]) -> None:
        """Call *run* in a thread; at the end of the block *end* is called, which must make it return."""
        self._at_close.append(end)

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001 - `take` raises it
                self.put(error)

        # The thread works for the operation of this one, with its time limits.
        context = copy_context()
        threading.Thread(
            target=context.run, args=(guarded,), name="kinetic-log", daemon=True
        ).start()

    def put(self, item: Item | Exception) -> None:
        """Add an item; wait while there are too many. After the block, items are dropped."""
        while not self.closed:
            try:
                self._queue.put(item, timeout=_LOOK_AGAIN)
            except queue.Full:
                continue
            return

    def take(self, timeout: float) -> Item | None:
        """Return the next item, or None if none arrives in *timeout* seconds.

        Raises:
            Exception: A thread failed.
        """
        try:
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item
