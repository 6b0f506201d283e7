"""(child) Call the user's function, and return how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kinetic_payload.errors import KineticError
from kinetic_runner.child.stop_requests import Stopping, Terminated


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
        """How the function exited, as a sentence."""
        code = self.error.code
        if isinstance(code, int):
            return f"The function called sys.exit({code})."
        return f"The function called sys.exit: {code!s}"


class Stopped(NamedTuple):
    """The function ended because SIGTERM stopped it."""

    error: BaseException


CallEnd = Returned | Raised | Exited | Stopped

_NOTHING: Final = object()


class AwaitableResultError(KineticError, TypeError):
    """The function returned something that still has to be awaited."""


def invoke(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stopping: Stopping,
) -> CallEnd:
    """Call *function* and return how it ended; raise nothing.

    After the call, signals are only recorded.
    """
    value: Any = _NOTHING
    error: BaseException | None = None
    try:
        try:
            value = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is how the function ended
            error = raised
        stopping.only_record()
    except Terminated as late:
        # `Terminated` is raised only once. If the function had ended before, it was not stopped.
        if value is _NOTHING and error is None:
            error = late.__context__  # The function's own exception was just being caught.
        stopping.came_late = value is not _NOTHING or error is not None
        error = error if stopping.came_late else late
        stopping.only_record()
    try:
        if error is not None:
            stopped = stopping.stop_requested and not stopping.came_late
            if stopped or isinstance(error, Terminated):
                # Even if user code replaced `Terminated` by another exception.
                return Stopped(error)
            if isinstance(error, SystemExit):
                return Returned(None) if error.code in (None, 0) else Exited(error)
            return Raised(error)
        if hasattr(type(value), "__await__"):
            kind = type(value).__name__
            if kind == "coroutine" and (close := getattr(value, "close", None)) is not None:
                close()  # Otherwise Python warns, somewhere else, that it was never awaited.
            return Raised(
                AwaitableResultError(
                    f"The function returned a {kind}, which still has to be awaited.",
                    hint="Await it inside the function: return asyncio.run(main()).",
                )
            )
        return Returned(value)
    finally:
        error = None  # Its traceback refers to this frame, and would keep the function's objects.
