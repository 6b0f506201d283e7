"""Waiting: deadlines and polling intervals; the only module that sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar, cast

T = TypeVar("T")

Clock = Callable[[], float]
"""Returns seconds that never decrease."""


class Deadline:
    """A point in time after which waiting ends; `Deadline(None)` never passes."""

    def __init__(self, seconds: float | None, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._at = None if seconds is None else clock() + seconds

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed."""
        return self._at is not None and self._clock() >= self._at

    @property
    def remaining(self) -> float | None:
        """Seconds left, never below zero; None if the deadline never passes."""
        return None if self._at is None else max(0.0, self._at - self._clock())

    def at_most(self, seconds: float) -> float:
        """Return *seconds*, or the time left if that is less."""
        left = self.remaining
        return seconds if left is None else min(seconds, left)


_POLL_LEAST: Final = 0.02
_POLL_MOST: Final = 0.25
_POLL_SHARE: Final = 0.05
STORE_POLL: Final = 0.25
"""Seconds between two looks at a store, which may be a bucket."""


def poll_interval(elapsed: float) -> float:
    """Return the seconds between two polls of something that has been awaited for *elapsed* seconds.

    A twentieth of the time spent so far, at least 0.02 s: short waits end soon, long ones cost little.
    """
    return min(_POLL_MOST, max(_POLL_LEAST, _POLL_SHARE * elapsed))


async def in_thread(call: Callable[[], T], name: str) -> T:
    """Return what *call* returns in a daemon thread; if the awaiting task is cancelled, the result is dropped."""
    import asyncio  # It takes long, and only those who await need it.

    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(cast("T", value))
        else:
            done.set_exception(error)

    def run() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = call()
        except StopIteration as problem:
            # A future cannot hold a StopIteration.
            error = RuntimeError("The call raised StopIteration.")
            error.__cause__ = problem
        except BaseException as problem:  # noqa: BLE001 - raised in the awaiting task
            error = problem
        with suppress(RuntimeError):  # The loop may have been closed meanwhile.
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, daemon=True, name=name).start()
    return await done


def sleep(seconds: float) -> None:
    """Sleep. Other modules take this function as an argument, so that tests can replace it."""
    if seconds > 0:
        time.sleep(seconds)  # noqa: TID251 - this is the place
