"""Threads: calls in several of them, which the first failure, or Ctrl-C, stops, and queues between them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from math import inf
from operator import length_hint
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from kinetic_payload.progress import Advance, TrackProgress

A = TypeVar("A")
T = TypeVar("T")

_GRACE: Final = 2.0
"""Seconds that calls under way get to end after their caller was interrupted or has failed."""
_POLL: Final = 0.1
"""Seconds between checks whether a wait should be stopped."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong here
    """The work was stopped because its result is no longer needed."""


class _Thread(threading.local):
    stops: tuple[Callable[[], bool], ...] = ()


_thread = _Thread()


@contextmanager
def stoppable(stopped: Callable[[], bool]) -> Iterator[None]:
    """Stop this thread's work in the block, and the calls that it submits there, once *stopped* is true."""
    before = _thread.stops
    _thread.stops = (*before, stopped)
    try:
        yield
    finally:
        _thread.stops = before


@contextmanager
def finishing(seconds: float) -> Iterator[None]:
    """Let clean-up in the block run for up to *seconds*, even if this thread's work was stopped."""
    before, until = _thread.stops, monotonic() + seconds
    _thread.stops = (lambda: monotonic() > until,)
    try:
        yield
    finally:
        _thread.stops = before


def check_wanted() -> None:
    """Return if the result of this thread's work is still needed. Long work calls this between pieces.

    Raises:
        Stopped: It is not.
    """
    if any(stopped() for stopped in _thread.stops):
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep, as long as the result of this thread's work is needed.

    Raises:
        Stopped: It no longer is.
    """
    until = monotonic() + seconds
    never = threading.Event()
    while (left := until - monotonic()) > 0:
        check_wanted()
        never.wait(min(left, _POLL) if _thread.stops else left)


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


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


class Future(Generic[T]):
    """A value that one thread waits for and another one provides."""

    def __init__(self, executor: Executor | None = None) -> None:
        self.done = False
        self._value: T
        self._error: BaseException | None = None
        self._executor = executor
        self._ended: TimedQueue[None] = TimedQueue() if executor is None else executor.ended

    def result(self) -> T:
        """Wait for the value and return it, or raise what its call raised.

        Raises:
            Stopped: Another call of the executor failed, or the result of this thread's work is no
                longer needed.
        """
        while not self.done:
            if self._executor is not None and self._executor.failures:
                raise Stopped
            check_wanted()
            with suppress(Empty):
                self._ended.get(_POLL)
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: T) -> None:
        """Provide the value."""
        self._value = value
        self.done = True
        self._ended.put(None)

    def run(self, call: Callable[[], T]) -> None:
        """Provide what *call* returns.

        Raises:
            BaseException: *call* raised it; `result` raises it, too.
        """
        try:
            self.set_result(call())
        except BaseException as error:
            self._error = error
            self.done = True
            self._ended.put(None)
            raise


class Executor:
    """Run calls in up to *threads* threads while the block of its `with` statement runs.

    With one thread, calls run in place when they are submitted. Calls start in the order in which they
    were submitted, each in a copy of the context of the thread that submitted it. A `stoppable` block of that
    thread also stops them. The first failure, the block's own included, stops the rest: waiting calls never
    start, calls under way are stopped where they call `check_wanted`, and the block raises that failure.
    When the block ends, calls under way get *grace* seconds to end. The threads keep no process alive.
    """

    # `Thread.join` is not used: if it is interrupted, it takes a running thread for one that has ended
    # (python/cpython#90882). The thread that may be interrupted uses no lock, condition or semaphore either:
    # interrupted at the wrong step, they stay locked for good (python/cpython#148874). A `TimedQueue` has a
    # lock for each wait.

    def __init__(self, threads: int, *, grace: float = _GRACE) -> None:
        self.failures: list[BaseException] = []
        """Exceptions of the block and its calls, in the order in which they were raised."""
        self.ended: TimedQueue[None] = TimedQueue()
        """Receives an item whenever a call or a thread ends."""
        self._most = threads
        self._grace = grace
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._started = 0
        self._over: list[None] = []

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run *call* as soon as a thread is free."""
        future = Future[T](self)
        if self._most <= 1:
            future.run(call)
            return future
        self._calls.put(partial(self._run, future, call, _thread.stops))
        if self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name="kinetic-executor", daemon=True).start()
        return future

    def join(self) -> None:
        """Wait until all calls have ended; nothing can be submitted after this.

        Raises:
            BaseException: The first failure.
        """
        self._finish(inf)
        if self.failures:
            raise self.failures[0]

    def stop(self, error: BaseException | None = None) -> None:
        """Stop all calls, and wait for those under way for the grace time."""
        if error is not None:
            self.failures.append(error)
        self._closed = True
        self._finish(self._grace)

    def checked(self, track: TrackProgress) -> TrackProgress:
        """Return *track* wrapped so that a failure stops the work that counts through it, in any thread."""

        @contextmanager
        def begin(doing: str, total: int | None) -> Iterator[Advance]:
            with track(doing, total) as advance:

                def count(size: int) -> None:
                    if self.failures:
                        raise Stopped
                    advance(size)

                yield count

        return begin

    @contextmanager
    def stopped_by(self, future: Future[Any]) -> Iterator[None]:
        """Let the failure of *future* stop this thread's work in the block.

        Raises:
            BaseException: The call of *future* raised it.
        """
        try:
            with stoppable(lambda: bool(self.failures)):
                yield
        except Stopped:
            try:
                future.result()
            except BaseException as error:
                # That this thread was stopped is a consequence of the failure: do not show it as a cause.
                error.__suppress_context__ = True
                raise
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop(error)
        if isinstance(error, Stopped):
            raise self.failures[0]

    def _is_stopped(self) -> bool:
        return self._closed or bool(self.failures)

    def _finish(self, seconds: float) -> None:
        """Let each thread end after the calls that were submitted; wait for up to *seconds*."""
        for _ in range(self._started):
            self._calls.put(None)
        until = monotonic() + seconds
        while len(self._over) < self._started and (left := until - monotonic()) > 0:
            with suppress(Empty):
                self.ended.get(min(left, _POLL))

    def _work(self) -> None:
        try:
            while (run := self._calls.get()) is not None:
                if not self._is_stopped():
                    run()
        finally:
            self._over.append(None)
            self.ended.put(None)

    def _run(
        self, future: Future[T], call: Callable[[], T], stops: tuple[Callable[[], bool], ...]
    ) -> None:
        _thread.stops = (*stops, self._is_stopped)
        try:
            future.run(call)
        except BaseException as error:  # noqa: BLE001 - raised again by `result`, `join` or the block
            self.failures.append(error)
            self.ended.put(None)


def parallel_map(
    function: Callable[[A], T],
    items: Iterable[A],
    *,
    threads: int,
    grace: float = _GRACE,
) -> list[T]:
    """Return *function* of each item, in order, with up to *threads* calls at a time.

    Calls start in the order of the items. After a failure no call starts, calls under way are
    stopped where they call `check_wanted`, and the failure is raised when all have ended. After Ctrl-C, calls
    under way get *grace* seconds to end.

    Raises:
        BaseException: The first call that failed raised it.
    """
    threads = min(threads, length_hint(items, threads))
    if threads <= 1:
        return [function(item) for item in items]
    todo = enumerate(items)
    taking = threading.Lock()
    results: dict[int, T] = {}

    def keep_calling() -> None:
        while True:
            with taking:
                taken = next(todo, None)
            if taken is None:
                return
            check_wanted()
            number, item = taken
            results[number] = function(item)

    executor = Executor(threads, grace=grace)
    # Not a `with` statement: an interruption just before its `__exit__` would not stop the calls.
    try:
        for _ in range(threads):
            executor.submit(keep_calling)
        executor.join()
    except BaseException as error:
        executor.stop(error)
        raise
    return [results[number] for number in sorted(results)]


def batches(
    items: Iterable[A], size_of: Callable[[A], int], *, most: int, size: int
) -> Iterator[list[A]]:
    """Split *items*, in order, into pieces of work: up to *most* of up to *size* bytes together, or one larger item."""
    batch: list[A] = []
    total = 0
    for item in items:
        if batch and (total + size_of(item) > size or len(batch) >= most):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size_of(item)
    if batch:
        yield batch


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Iterate over *items*; a thread computes the next one while one is used.

    Raises:
        BaseException: Computing one of them raised it.
    """
    with Executor(2, grace=0.0) as executor:
        coming = executor.submit(lambda: [*islice(items, 1)])
        while found := coming.result():
            coming = executor.submit(lambda: [*islice(items, 1)])
            yield found[0]
