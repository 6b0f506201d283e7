"""Call the user's function and say how that ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NamedTuple

from kinetic_payload.errors import KineticError
from kinetic_payload.layout import EXIT_TERMINATED
from kinetic_runner.child.raising import Raising
from kinetic_runner.child.stop_requests import StopRequests


class Returned(NamedTuple):
    """The function returned, or ended with `SystemExit(0)`, which returns None."""

    value: Any


class Raised(NamedTuple):
    """The function raised an exception that left it."""

    error: BaseException


class Exited(NamedTuple):
    """The function ended with `SystemExit` and another code than 0."""

    error: SystemExit

    @property
    def message(self) -> str:
        """What was exited with."""
        code = self.error.code
        if isinstance(code, int):
            return f"The function called sys.exit({code})."
        return f"The function called sys.exit: {code!s}"


class Stopped(NamedTuple):
    """The function ended because it was told to, by SIGTERM."""

    error: BaseException


Ending = Returned | Raised | Exited | Stopped

_NOTHING: Final = object()


class Terminated(SystemExit):
    """Raised in the main thread by SIGTERM, so that `finally` blocks run during the grace."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)

    def __str__(self) -> str:
        return "Stopped by SIGTERM."


class AwaitableResultError(KineticError, TypeError):
    """The function returned something that still has to be awaited."""


class Stopping:
    """Whether this process was told to stop, and what the first SIGTERM does.

    Processes that user code forks die of it, as everywhere: pools end their workers so, and an exception
    would be lost in one that is just being made.
    """

    def __init__(self, requests: int = -1, file: str = "") -> None:
        self.asked = False
        self.came_late = False
        """Whether it is certain that the function had ended before it could be told to stop."""
        self._raises = True
        self._process = os.getpid()
        self._raise = Raising(
            Terminated, lambda: self._raises and signal.getsignal(signal.SIGTERM) is self
        )
        self.requests = StopRequests(requests, file, lambda: self.asked)

    @classmethod
    def install(cls, requests: int | None = None, file: str = "") -> Stopping:
        """Handle SIGTERM from now on, until user code sets a handler of its own.

        *requests* is the pipe from the parent that stands in for it where native code takes it, *file*
        what the parent makes in case user code has closed that.
        """
        stopping = cls(requests if requests is not None else -1, file)
        signal.signal(signal.SIGTERM, stopping)
        stopping.requests.install()
        os.register_at_fork(after_in_child=stopping._forked)
        return stopping

    def _forked(self) -> None:
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def __call__(self, _signum: int, frame: FrameType | None) -> None:
        """Handle the signal. Only the first raises: clean-up must not be interrupted again."""
        if os.getpid() != self._process:  # It came before `_forked` did, or our end was handed on.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        self.asked = True
        if self._raises:
            self._raise(frame)

    def check(self) -> None:
        """Raise `Terminated` if that was due and somebody swallowed it.

        Imports and debuggers run code that does.
        """
        if self.asked and self._raises:
            raise Terminated

    def only_note(self) -> None:
        """From now on a signal is remembered and interrupts nothing: what ended gets reported.

        A handler of the user's for SIGTERM is replaced: it has had its time. Others go on, and what
        they raise is dropped: a watchdog that nobody switched off must not cost the value.
        """
        heard = self.asked or signal.getsignal(signal.SIGTERM) is not self  # Then nobody knows.
        self.came_late |= not heard and signal.SIGTERM not in signal.sigpending()
        self._raises = False
        signal.signal(signal.SIGTERM, self)
        for number in signal.valid_signals() - {signal.SIGTERM}:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Quiet):
                signal.signal(number, _Quiet(handler))


class _Quiet:
    """A handler of the user's that cannot interrupt what it comes into."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        with suppress(BaseException):
            self._handler(number, frame)


def invoke(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stopping: Stopping,
) -> Ending:
    """Call *function* and return how it ended; nothing it raises passes.

    From then on a signal is only noted.
    """
    value: Any = _NOTHING
    error: BaseException | None = None
    try:
        try:
            value = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the answer
            error = raised
        stopping.only_note()
    except Terminated as late:
        # It is raised only once: before this the function, if it has ended, was not told.
        if value is _NOTHING and error is None:
            error = late.__context__  # What it raised was just being caught.
        stopping.came_late = value is not _NOTHING or error is not None
        error = error if stopping.came_late else late
        stopping.only_note()
    try:
        if error is not None:
            return ending_of(error, stopped=stopping.asked and not stopping.came_late)
        if hasattr(type(value), "__await__"):
            return Raised(_never_awaited(value))
        return Returned(value)
    finally:
        error = None  # Its traceback has this frame: what the function held would live on.


def ending_of(error: BaseException, *, stopped: bool) -> Ending:
    """Decide what it means that *error* left the function."""
    if stopped or isinstance(error, Terminated):
        # Also if a handler turned our exception into another one on its way out.
        return Stopped(error)
    if isinstance(error, SystemExit):
        return Returned(None) if error.code in (None, 0) else Exited(error)
    return Raised(error)


def _never_awaited(value: Any) -> AwaitableResultError:
    kind = type(value).__name__
    close = getattr(value, "close", None)
    if kind == "coroutine" and close is not None:
        close()  # Otherwise Python warns, somewhere else, that it was never awaited.
    return AwaitableResultError(
        f"The function returned a {kind}, which still has to be awaited.",
        hint="Await it inside the function: return asyncio.run(main()).",
    )
