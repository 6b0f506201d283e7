"""How an attempt ended, decided from what was seen: wait status, our own signals, last words."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from kinetic_payload.layout import EXIT_FUNCTION_FAILED, EXIT_NOT_PREPARED, EXIT_TERMINATED
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Phase, Pickled, Reason

Cause = Literal["timeout", "terminated", "orphaned"]
"""Why the parent ended the child: its time was up, SIGTERM came, the supervisor died."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the parent saw of its child."""

    phase: Phase
    status: int | None
    """As `waitpid` gives it; None if the child would not go away."""
    reported: HostOutcome | None = None
    """The child's own last word."""
    reported_in_time: bool = True
    """Whether it came before the parent began to end the child."""
    cause: Cause | None = None
    stopped_at: float | None = None
    """When SIGTERM was passed on to it, in seconds since the epoch."""
    killed_by_us: bool = False
    timeout: float | None = None
    grace: float = 0.0
    out_of_memory: bool | None = None
    """Whether the kernel's counter of such kills rose; None where there is no counter."""
    phases: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def outcome_of(seen: Seen, blank: HostOutcome) -> HostOutcome:
    """Return *blank*, which names job, attempt, host and times, filled with how it ended."""
    reported = seen.reported
    if reported is not None and seen.reported_in_time:
        return replace(
            reported,
            job_id=blank.job_id,
            attempt=blank.attempt,
            host=blank.host,
            started_at=blank.started_at,
            finished_at=blank.finished_at,
            phases={**seen.phases, **reported.phases},
            python=reported.python or blank.python,
            hostname=reported.hostname or blank.hostname,
            warnings=(*reported.warnings, *blank.warnings),
        )
    return replace(
        blank,
        succeeded=False,
        phase=seen.phase,
        phases=seen.phases,
        warnings=(*seen.warnings, *blank.warnings),
        **(_ended_by_us(seen) if seen.cause else _ended_by_itself(seen)),
    )


def outcome_from(message: Mapping[str, Any]) -> HostOutcome:
    """Rebuild an outcome from its JSON; unknown keys are ignored.

    Raises:
        TypeError: It is not an outcome.
    """
    values = _known(HostOutcome, message)
    error = values.get("error")
    if error is not None:
        said = _known(ErrorInfo, error)
        said["notes"] = tuple(said.get("notes") or ())
        values["error"] = ErrorInfo(**{**said, "pickled": _pickled(said.get("pickled"))})
    values["value"] = _pickled(values.get("value"))
    values["warnings"] = tuple(values.get("warnings") or ())
    return HostOutcome(**values)


def _pickled(message: Mapping[str, Any] | None) -> Pickled | None:
    return None if message is None else Pickled(**_known(Pickled, message))


def _known(kind: type[Any], message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TypeError(f"{message!r} is not a {kind.__name__}")
    return {part.name: message[part.name] for part in fields(kind) if part.name in message}


def exit_code_of(status: int) -> int:
    """Return what a shell would show for a wait status."""
    number = _signal_of(status)
    return 128 + number if number is not None else status >> 8 & 0xFF


def _signal_of(status: int) -> int | None:
    return status & 0x7F or None


def _ended_by_us(seen: Seen) -> dict[str, Any]:
    """Describe an end that the parent brought about.

    Whatever the child said after it was told to stop counts as words of farewell: a function that
    saves its state on SIGTERM and returns early has not done its work.
    """
    last = seen.reported
    if seen.cause == "timeout":
        after = f"{seen.timeout:g} s" if seen.timeout is not None else "its time"
        message, reason, code = f"The function ran for more than {after}", "timeout", 1
    elif seen.cause == "terminated":
        message, reason, code = "SIGTERM came from outside", "terminated", EXIT_TERMINATED
        message += f" in the phase {seen.phase!r}"
    else:
        message, reason, code = "The job's supervisor died", "terminated", EXIT_TERMINATED
    if seen.cause == "orphaned":
        message += "; its process was killed."
    elif last is not None and last.succeeded:
        message += ". Told to stop, the function ended in an orderly way."
    elif last is not None:
        message += ". Told to stop, it ended with an error."
    elif seen.killed_by_us:
        message += f". It did not stop within {seen.grace:g} s and was killed."
    else:
        message += "; it was told to stop."
    number = _signal_of(seen.status) if seen.status is not None else None
    error = last.error if last is not None else None
    return {
        "reason": reason, "exit_code": code, "message": message, "signal": number, "error": error,
        "stopped_at": seen.stopped_at if seen.cause == "terminated" else None,
    }  # fmt: skip


def _ended_by_itself(seen: Seen) -> dict[str, Any]:
    where = "the function" if seen.phase == "call" else f"the phase {seen.phase!r}"
    if seen.status is None:
        return _ending("killed", 137, f"The process was killed in {where}, but did not go away.")
    number = _signal_of(seen.status)
    if number is None:
        code = exit_code_of(seen.status)
        message = f"The process ended with exit code {code} inside {where}, without a word."
        if seen.phase in ("call", "report"):
            return _ending("exited", EXIT_FUNCTION_FAILED, message)
        return _ending("exited", EXIT_NOT_PREPARED, message)
    message = f"The process was killed by {_name(number)} in {where}"
    if number == signal.SIGKILL:
        message += {
            True: ": the kernel ran out of memory",
            False: ", though the kernel counted no lack of memory here",
            None: ", possibly because it ran out of memory",
        }[seen.out_of_memory]
    elif number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL):
        message += ": native code crashed"
    elif number == signal.SIGABRT:
        message += ": native code gave up; with several hosts, often because another one died"
    return {**_ending("killed", 128 + number, message + "."), "signal": number}


def _ending(reason: Reason, exit_code: int, message: str) -> dict[str, Any]:
    return {"reason": reason, "exit_code": exit_code, "message": message}


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
