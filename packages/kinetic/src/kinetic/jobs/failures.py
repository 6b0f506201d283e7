"""Exceptions of failed jobs, made from the reports of their hosts."""

from __future__ import annotations

from typing import TypeVar

from kinetic.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    RemoteError,
    ResultUnreadableError,
)
from kinetic_payload.calls.unpickle import difference, minor
from kinetic_payload.errors import KineticError
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import Outcome

E = TypeVar("E", bound=BaseException)


def failure_without_exception(outcome: Outcome, host: HostOutcome | None) -> JobError:
    """Return the error for a job that ended without a value and without the user's exception."""
    if outcome.status == "cancelled":
        return JobCancelledError(
            f"Job {outcome.job_id} was cancelled.",
            hint=f"Its log is kept: kinetic jobs logs {outcome.job_id}",
            job_id=outcome.job_id,
        )
    reason = outcome.message or (host.message if host else "") or "No reason was reported."
    attempt = f" in attempt {outcome.attempt}" if (outcome.attempt or 1) > 1 else ""
    error = JobFailedError(
        f"Job {outcome.job_id} failed{attempt}: {reason}",
        hint=f"Its log: kinetic jobs logs {outcome.job_id}",
        job_id=outcome.job_id,
    )
    for note in notes_of(outcome, host):
        error.add_note(note)
    return error


def remote_error(outcome: Outcome, host: HostOutcome, why: str) -> RemoteError:
    """Return an error in place of the user's exception, which cannot be rebuilt here because of *why*."""
    info = host.error
    assert info is not None
    headline = f"{info.type}: {info.message}" if info.message else info.type
    error = RemoteError(
        headline,
        hint=f"The exception itself could not be rebuilt here: {why}",
        job_id=outcome.job_id,
    )
    error.remote_type = info.type
    error.remote_message = info.message
    error.remote_traceback = info.traceback
    return annotated(error, outcome, host)


def unreadable(job_id: str, host: HostOutcome, problem: Exception) -> ResultUnreadableError:
    """Return the error for a value that *host* reported, but that *problem* prevents from being unpickled."""
    todo = "Install what it needs here, then call result() again."
    if difference(host.python) is not None:
        todo = f"Call result() from Python {minor(host.python)}."
    return ResultUnreadableError(
        f"Job {job_id} succeeded, but its value cannot be unpickled here: "
        f"{why_unreadable(host, problem)}",
        hint=f"The value is kept. {todo}",
    )


def why_unreadable(host: HostOutcome, problem: Exception) -> str:
    """Return why the result of *host* cannot be unpickled here, with both Python versions if they differ."""
    versions = difference(host.python)
    text = _sentence(problem)
    return text if versions is None else f"it was {versions}. {text}"


def _sentence(problem: Exception) -> str:
    """Return *problem* as a sentence."""
    if isinstance(problem, KineticError):
        return problem.message
    return f"{type(problem).__name__}: {problem}".rstrip(".") + "."


def annotated(error: E, outcome: Outcome, host: HostOutcome) -> E:
    """Add the place where *error* happened and its remote traceback as notes, once."""
    known = set(getattr(error, "__notes__", ()))
    for note in notes_of(outcome, host):
        if note not in known:
            error.add_note(note)
    return error


def notes_of(outcome: Outcome, host: HostOutcome | None) -> list[str]:
    """Return notes on where an exception happened: remote traceback, phase, attempt, host."""
    if host is None:
        return []
    notes = []
    if host.error is not None and host.error.traceback:
        notes.append("Remote traceback:\n" + host.error.traceback.rstrip())
    notes.append(
        f"In phase {host.phase!r} of attempt {host.attempt} on host {host.host} "
        f"of job {outcome.job_id}."
    )
    if outcome.other_failed_hosts:
        others = ", ".join(str(number) for number in outcome.other_failed_hosts)
        plural = "s" if len(outcome.other_failed_hosts) > 1 else ""
        notes.append(f"Also failed: host{plural} {others}.")
    notes.extend(host.warnings)
    return notes
