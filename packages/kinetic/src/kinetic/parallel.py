"""Calls that wait for a network, several at once where that is worth it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kinetic_payload.threads import Stopped, check_wanted, stoppable

if TYPE_CHECKING:
    from kinetic_payload.progress import Advance, Reports

T = TypeVar("T")
A = TypeVar("A")

_PATIENCE = 2.0
_LOOK = 0.1
"""Seconds after which who waits for a call looks whether that is still wanted."""


class Task(Generic[T]):
    """A call that a `Crew` makes."""

    def __init__(self, crew: Crew, call: Callable[[], T]) -> None:
        self._crew = crew
        self._call = call
        self._value: T
        self._error: BaseException | None = None
        self.done = False

    def result(self) -> T:
        """Wait for the end of the call, and return what it returned or raise what it raised.

        Raises:
            Stopped: Another call of the crew failed meanwhile.
        """
        self._crew.wait_for(self)
        if self._error is not None:
            raise self._error
        return self._value

    def run(self) -> BaseException | None:
        """Make the call, and return what it raised, if anything."""
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self._error = error
        return self._error


class Crew:
    """Makes calls in threads of its own, *workers* at a time, beside what its block does.

    With one worker they are made in place, where they are begun. The first failure, the block's own
    included, stops the rest: what was not begun never is, and what waits for a store, or is counted
    through `counting`, is given up (`Stopped`). The threads keep no process alive: nobody waits for
    them after Ctrl-C. At the end of the block, calls under way get *patience* seconds to notice that
    they are not wanted any more.
    """

    def __init__(self, workers: int, *, patience: float = _PATIENCE) -> None:
        self._workers = workers
        self._patience = patience
        self._waiting: deque[Task[Any]] = deque()
        self._begun = 0
        self._threads = 0
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def start(self, call: Callable[[], T]) -> Task[T]:
        """Begin *call* as soon as a worker is free."""
        task = Task(self, call)
        if self._workers <= 1:
            task.done = True
            if (error := task.run()) is not None:
                raise error
            return task
        with self._changed:
            self._waiting.append(task)
            if self._threads < self._workers:
                self._threads += 1
                work = partial(copy_context().run, self._work)
                threading.Thread(target=work, daemon=True, name="kinetic-crew").start()
        return task

    def wait_for(self, task: Task[Any]) -> None:
        """Return when *task* is over.

        Raises:
            Stopped: Another one failed, or nobody wants what this thread does any more.
        """
        with self._changed:
            while not task.done:
                if self._failure is not None:
                    raise Stopped
                check_wanted()  # The calls run in threads of their own, which nobody tells.
                self._changed.wait(_LOOK)

    def counting(self, reports: Reports) -> Reports:
        """Return *reports* for calls of this crew: work that goes on after a failure is stopped."""

        @contextmanager
        def begin(doing: str, total: int | None) -> Iterator[Advance]:
            with reports(doing, total) as advance:

                def count(size: int) -> None:
                    if self._failure is not None:
                        raise Stopped
                    advance(size)

                yield count

        return begin

    @contextmanager
    def beside(self, task: Task[Any]) -> Iterator[None]:
        """Let what the block does be given up, where it waits for a store, once *task* has failed.

        Raises:
            BaseException: What *task* raised.
        """
        try:
            with stoppable(lambda: self._failure is not None):
                yield
        except Stopped:
            task.result()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._waiting.clear()
            until = time.monotonic() + self._patience
            while self._begun and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
        if isinstance(error, Stopped) and self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting or self._failure is not None:
                    self._threads -= 1
                    return
                task = self._waiting.popleft()
                self._begun += 1
            with stoppable(lambda: self._failure is not None):
                error = task.run()
            with self._changed:
                task.done = True
                self._begun -= 1
                if self._failure is None:
                    self._failure = error
                self._changed.notify_all()


class Later(Generic[T]):
    """A value that one thread knows later, and another waits for."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self._value: T

    def set(self, value: T) -> None:
        """Make *value* known."""
        self._value = value
        self._known.set()

    def get(self) -> T:
        """Wait until it is known.

        Raises:
            Stopped: Nobody wants what this thread does any more.
        """
        while not self._known.wait(_LOOK):
            check_wanted()
        return self._value


def map_at_once(function: Callable[[A], T], items: Iterable[A], *, workers: int) -> list[T]:
    """Return *function* of each item, in order, with at most *workers* calls at a time.

    Raises:
        BaseException: What the first call that failed raised; no more are begun then.
    """
    if workers <= 1:
        return [function(item) for item in items]
    with Crew(workers) as crew:
        tasks = [crew.start(partial(function, item)) for item in items]
        return [task.result() for task in tasks]
