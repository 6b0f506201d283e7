"""Tracebacks of uncaught exceptions without Kinetic's own frames."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final

from kinetic_payload.errors import KineticError

_OWN: Final = ("kinetic", "kinetic_payload", "kinetic_images", "kinetic_k8s", "kinetic_cli")


def hide_own_frames() -> None:
    """Let Python print the exceptions that Kinetic raises without Kinetic's frames, if nobody catches them.

    This holds in any thread, and for Ctrl-C while Kinetic works or waits. KINETIC_TRACEBACK=full shows the frames. An
    exception that somebody catches has them all, and so has one that another hook than Python's own handles.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_error
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _print_error_of_thread


def _print_error_of_thread(args: threading.ExceptHookArgs) -> None:
    error = args.exc_value

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        shown = threading.ExceptHookArgs((kind, error, trace, args.thread))
        threading.__excepthook__(shown)

    if error is None:
        threading.__excepthook__(args)
    else:
        _print_error(args.exc_type, error, args.exc_traceback, show)


def _print_error(
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    show: Callable[..., object] = sys.__excepthook__,
) -> None:
    from kinetic.settings.settings import environment

    full = environment().get("KINETIC_TRACEBACK", "").strip().lower() == "full"
    if full or not _is_raised_by_kinetic(error, trace):
        show(kind, error, trace)
        return
    cause, hidden = error.__cause__, error.__suppress_context__
    error = error.with_traceback(_users_part(trace))
    if isinstance(error, KineticError) and cause is not None:
        # The sentence says what another library's error means; one of the user's code has to be seen.
        users = _users_part(cause.__traceback__, inside=True)
        error.__cause__ = cause.with_traceback(users) if users else None
    try:
        show(kind, error, error.__traceback__)
    finally:  # For a debugger.
        error.with_traceback(trace)
        if isinstance(error, KineticError):
            error.__cause__, error.__suppress_context__ = cause, hidden


def _is_raised_by_kinetic(error: BaseException, trace: TracebackType | None) -> bool:
    from kinetic.jobs.fetch import Collected

    last = None
    while trace is not None:
        if isinstance(error, KeyboardInterrupt) and _is_own(trace):
            return True
        last, trace = trace, trace.tb_next
    if last is None or isinstance(error, KeyboardInterrupt):
        return False
    if isinstance(error, KineticError):
        return _is_own(last)
    return last.tb_frame.f_code is Collected.get.__code__  # It is that of a job's function.


def _users_part(trace: TracebackType | None, *, inside: bool = False) -> TracebackType | None:
    """Return *trace* without Kinetic's frames, and without those of libraries below them, or if *inside*."""
    if trace is None:
        return None
    own = _is_own(trace)
    rest = _users_part(trace.tb_next, inside=inside or own)
    libraries = (sys.prefix, sys.base_prefix, "<frozen ")
    if own or (inside and trace.tb_frame.f_code.co_filename.startswith(libraries)):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def _is_own(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _OWN
