"""One function over many items in several threads; the first failure, or Ctrl-C, ends all of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final, TypeVar

T = TypeVar("T")

_PATIENCE: Final = 2.0
"""Seconds that work under way gets to notice that its caller was interrupted."""
_LOOK: Final = 0.1
"""Seconds after which a pause looks whether it is still wanted."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong here
    """Work was given up because nobody waits for it any more."""


class _Thread(threading.local):
    stops: tuple[Callable[[], bool], ...] = ()


_thread = _Thread()


@contextmanager
def stoppable(stopped: Callable[[], bool]) -> Iterator[None]:
    """Let what this thread does in the block, and its threads in `each`, be given up once *stopped*."""
    before = _thread.stops
    _thread.stops = (*before, stopped)
    try:
        yield
    finally:
        _thread.stops = before


def check_wanted() -> None:
    """Do nothing, where somebody waits for what this thread does. Long work asks between its pieces.

    Raises:
        Stopped: Nobody does any more.
    """
    if any(stopped() for stopped in _thread.stops):
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep, as long as somebody waits for what this thread does.

    Raises:
        Stopped: Nobody does any more.
    """
    until = monotonic() + seconds
    never = threading.Event()
    while (left := until - monotonic()) > 0:
        check_wanted()
        never.wait(min(left, _LOOK) if _thread.stops else left)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def each(
    work: Callable[[T], object],
    items: Sequence[T],
    *,
    threads: int,
    patience: float = _PATIENCE,
) -> None:
    """Call *work* with every item, *threads* at a time, and return when all are done.

    Items are begun in their order. After a failure no further one is begun, those under way are
    stopped where they ask `check_wanted`, and the first failure is raised when all are over. The
    threads keep no process alive: after Ctrl-C they are waited for *patience* seconds only.
    """
    threads = min(threads, len(items))
    if threads <= 1:
        for item in items:
            work(item)
        return
    todo = iter(items)
    taking = threading.Lock()
    stopped = threading.Event()
    outer = _thread.stops
    failures: list[BaseException] = []
    over: list[None] = []
    told: SimpleQueue[None] = SimpleQueue()

    def keep_working() -> None:
        _thread.stops = (*outer, stopped.is_set)
        try:
            while not stopped.is_set():
                with taking:
                    taken = next(((item,) for item in todo), None)
                if taken is None:
                    return
                work(taken[0])
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            failures.append(error)
            stopped.set()
        finally:
            over.append(None)
            told.put(None)

    begun = 0
    try:
        for _ in range(threads):
            begun += 1
            work_on = partial(copy_context().run, keep_working)
            threading.Thread(target=work_on, name="kinetic-each", daemon=True).start()
        # Not `join`: when it is interrupted, it takes a thread that runs for one that ended
        # (python/cpython#90882). Nor a semaphore: interrupted at the wrong step, it is locked for
        # good (python/cpython#148874). To wait at a `SimpleQueue` is one step.
        while len(over) < begun:
            told.get()
    except BaseException:
        stopped.set()
        until = monotonic() + patience
        while len(over) < begun and (left := until - monotonic()) > 0:
            with suppress(Empty):
                told.get(timeout=left)
        raise
    if failures:
        raise failures[0]
