"""Decide how a host's attempt ended: what the parent saw of its child → outcome with an exit code."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Literal

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, EXIT_NOT_PREPARED, EXIT_TERMINATED
from kinetic_payload.memory import in_mebibytes, memory_to_try
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Phase, Pickled, Reason

_NEAR: Final = 0.9
"""The share of its limit from which on a container is taken to have reached it."""
Cause = Literal["timeout", "terminated", "orphaned"]
"""Why the parent ended the child: the time limit was reached, SIGTERM came, or the supervisor died."""


@frozen(kw_only=True)
class ChildEnd:
    """How the child ended, as the parent saw it."""

    phase: Phase
    status: int | None
    """The wait status; None if the child was killed but did not end."""
    reported: HostOutcome | None = None
    """The outcome that the child reported."""
    reported_in_time: bool = True
    """Whether the child reported before the parent began to stop it."""
    cause: Cause | None = None
    stopped_at: float | None = None
    """When the parent began to stop the child, in seconds since the epoch."""
    killed_by_parent: bool = False
    timeout: float | None = None
    grace: float = 0.0
    devices_seen: str | None = None
    """What JAX found in the child, as in `HostOutcome`."""
    oom_killed: bool | None = None
    """Whether the kernel's counter of OOM kills rose; None where there is no counter."""
    memory_limit: int | None = None
    """The most bytes that the container may use; None without a container, or without a limit."""
    phases: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def outcome_of(end: ChildEnd, blank: HostOutcome) -> HostOutcome:
    """Return the outcome for *end*; job, attempt, host and times come from *blank*."""
    reported = end.reported
    notes: tuple[str, ...] = ()
    own = end.status is not None and _signal_of(end.status) == signal.SIGKILL
    if end.oom_killed and end.memory_limit is not None and not own:
        # The function then fails with an error that does not say why, if at all. Outside of a container, the killed
        # process may be one of another program.
        killed = "The kernel killed a process that the function had started, for lack of memory."
        notes = (f"{killed} {_out_of_memory(end.memory_limit, blank.peak_memory)}",)
    if reported is not None and end.reported_in_time:
        if reported.reason == "terminated":
            # A disruption would be repeated for ever.
            message = "The function was ended by a SIGTERM that the runner did not get."
            code = EXIT_FUNCTION_FAILED
            reported = replace(reported, reason="exited", exit_code=code, message=message)
        return replace(
            reported,
            job_id=blank.job_id,
            attempt=blank.attempt,
            host=blank.host,
            started_at=blank.started_at,
            finished_at=blank.finished_at,
            phases={**end.phases, **reported.phases},
            python=reported.python or blank.python,
            hostname=reported.hostname or blank.hostname,
            warnings=(*reported.warnings, *blank.warnings, *notes),
            node=blank.node,
            devices_expected=blank.devices_expected,
            devices_seen=end.devices_seen,
            peak_memory=blank.peak_memory,
        )
    return replace(
        blank,
        succeeded=False,
        phase=end.phase,
        phases=end.phases,
        devices_seen=end.devices_seen,
        warnings=(*end.warnings, *blank.warnings, *notes),
        **(_ended_by_parent(end) if end.cause else _ended_by_itself(end, blank.peak_memory)),
    )


def outcome_from(message: Mapping[str, Any]) -> HostOutcome:
    """Rebuild an outcome from its JSON; unknown keys are ignored.

    Raises:
        TypeError: *message* is not an outcome.
    """
    values = _known_fields(HostOutcome, message)
    error = values.get("error")
    if error is not None:
        known = _known_fields(ErrorInfo, error)
        known["notes"] = tuple(known.get("notes") or ())
        values["error"] = ErrorInfo(**{**known, "pickled": _pickled(known.get("pickled"))})
    values["value"] = _pickled(values.get("value"))
    values["warnings"] = tuple(values.get("warnings") or ())
    return HostOutcome(**values)


def _pickled(message: Mapping[str, Any] | None) -> Pickled | None:
    return None if message is None else Pickled(**_known_fields(Pickled, message))


def _known_fields(kind: type[Any], message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TypeError(f"{message!r} is not a {kind.__name__}")
    return {part.name: message[part.name] for part in fields(kind) if part.name in message}


def _signal_of(status: int) -> int | None:
    return status & 0x7F or None


def _ended_by_parent(end: ChildEnd) -> dict[str, Any]:
    """Describe an end that the parent caused.

    A success that the child reports after the stop does not count: a function that saves its state on
    SIGTERM and returns early has not finished its work.
    """
    last = end.reported
    if end.cause == "timeout":
        after = f"{end.timeout:g} s" if end.timeout is not None else "its time"
        message, reason, code = f"The function ran for more than {after}", "timeout", 1
    elif end.cause == "terminated":
        message, reason, code = "SIGTERM came from outside", "terminated", EXIT_TERMINATED
        message += f" in the phase {end.phase!r}"
    else:
        message, reason, code = "The job's supervisor died", "terminated", EXIT_TERMINATED
    if end.cause == "orphaned":
        message += "; its process was killed."
    elif last is not None and last.succeeded:
        message += ". The function was stopped, and ended in an orderly way."
    elif last is not None:
        message += ". It was stopped, and ended with an error."
    elif end.killed_by_parent:
        message += f". It did not stop within {end.grace:g} s and was killed."
    else:
        message += "; it was stopped."
    number = _signal_of(end.status) if end.status is not None else None
    error = last.error if last is not None else None
    return {
        "reason": reason, "exit_code": code, "message": message, "signal": number, "error": error,
        "stopped_at": end.stopped_at if end.cause == "terminated" else None,
    }  # fmt: skip


def _ended_by_itself(end: ChildEnd, peak: int | None) -> dict[str, Any]:
    where = "the function" if end.phase == "call" else f"the phase {end.phase!r}"
    if end.status is None:
        return _fields("killed", 137, f"The process was killed in {where}, but did not end.")
    number = _signal_of(end.status)
    if number is None:
        code = end.status >> 8 & 0xFF
        message = f"The process ended with exit code {code} inside {where}, without a report."
        called = end.phase in ("call", "report")
        ours = EXIT_FUNCTION_FAILED if called else EXIT_NOT_PREPARED
        return {**_fields("exited", ours, message), "exited_with": code}
    message = f"The process was killed by {_name(number)} in {where}"
    if number == signal.SIGKILL:
        message += {
            True: ": the kernel ran out of memory",
            False: ", although the kernel counted no kill for lack of memory here",
            None: ", possibly because it ran out of memory",
        }[end.oom_killed]
    elif number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL):
        message += ": native code crashed"
    elif number == signal.SIGABRT:
        message += ": native code aborted; with several hosts, often because another host ended"
    message += "."
    if number == signal.SIGKILL and end.oom_killed and end.memory_limit:
        message += f" {_out_of_memory(end.memory_limit, peak)}"
    # The exit code of SIGTERM is the runner's own for a stop from outside, which is no failure.
    code = EXIT_FUNCTION_FAILED if number == signal.SIGTERM else 128 + number
    found = {"signal": number, "out_of_memory": bool(end.oom_killed) or None}
    return {**_fields("killed", code, message), **found}


def _out_of_memory(limit: int, peak: int | None) -> str:
    if peak and peak < limit * _NEAR:
        return (
            f"The node ran out of memory: the container used {in_mebibytes(peak)} at most, and its limit is "
            f"{in_mebibytes(limit)}. Request what the job needs: memory="
        )
    used = f", and the most that it used is {in_mebibytes(peak)}" if peak else ""
    wanted = memory_to_try(max(limit, peak or 0))
    return (
        f"The limit of the container is {in_mebibytes(limit)}{used}. "
        f"Use less memory, or try memory={wanted!r}."
    )


def _fields(reason: Reason, exit_code: int, message: str) -> dict[str, Any]:
    return {"reason": reason, "exit_code": exit_code, "message": message}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
