"""Tracebacks of uncaught exceptions that end at the user's line, without Kinetic's own frames."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final

from kinetic_payload.errors import KineticError

_OWN: Final = ("kinetic", "kinetic_payload", "kinetic_images", "kinetic_k8s", "kinetic_cli")


def hide_own_frames() -> None:
    """Let Python print the exceptions that Kinetic raises without Kinetic's frames, if nobody catches them.

    KINETIC_TRACEBACK=full shows them. An exception that somebody catches has them all. What handles uncaught
    exceptions already is called as before.
    """
    previous = sys.excepthook
    if getattr(previous, "__module__", None) == __name__:
        return

    def print_error(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        from kinetic.settings.settings import environment

        short = environment().get("KINETIC_TRACEBACK", "").strip().lower() != "full"
        if not short or not (isinstance(error, KineticError) or _is_of_a_job(trace)):
            previous(kind, error, trace)
            return
        whole = trace, error.__cause__, error.__suppress_context__
        trace = _users_part(trace)
        error.__traceback__ = trace
        if isinstance(error, KineticError):  # Its sentence says what another library's error means.
            error.__cause__ = None
        try:
            previous(kind, error, trace)
        finally:  # For a debugger.
            error.__traceback__, error.__cause__, error.__suppress_context__ = whole

    sys.excepthook = print_error


def _is_of_a_job(trace: TracebackType | None) -> bool:
    """Return whether *trace* is that of an exception of a job's function."""
    from kinetic.jobs.fetch import Collected

    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code is Collected.get.__code__


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the frames of *trace* before the first one of Kinetic."""
    if trace is None or _is_own(trace):
        return None
    return TracebackType(
        _users_part(trace.tb_next), trace.tb_frame, trace.tb_lasti, trace.tb_lineno
    )


def _is_own(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] in _OWN
