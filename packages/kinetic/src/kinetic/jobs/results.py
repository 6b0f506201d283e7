"""What hosts reported → the value or the exception, and what to say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kinetic.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    KineticError,
    RemoteError,
    ResultUnreadableError,
)
from kinetic.job_status import JobStatus
from kinetic_payload.calls.unpickle import difference, minor
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.retry import HostEnd, Result, deciding, result_of

E = TypeVar("E", bound=BaseException)
J = TypeVar("J", bound=JobError)


@dataclass(frozen=True)
class JobOutcome:
    """What happened to a job, per attempt and host, readable without unpickling anything."""

    job_id: str
    status: JobStatus
    message: str
    """What happened, for people: how each attempt ended, where there were several; empty while the first runs."""
    final: Outcome | None
    """The durable outcome, None while there is none."""
    hosts: tuple[HostOutcome, ...]
    """Every report, in order of attempt and host."""

    @property
    def attempts(self) -> dict[int, tuple[HostOutcome, ...]]:
        """The reports by attempt."""
        numbers = sorted({host.attempt for host in self.hosts})
        return {n: tuple(h for h in self.hosts if h.attempt == n) for n in numbers}


def status_of(outcome: Outcome) -> JobStatus:
    """Return the status of a job that has *outcome*: cancelled jobs are FAILED until cleaned up."""
    return JobStatus.SUCCEEDED if outcome.status == "succeeded" else JobStatus.FAILED


def deciding_host(outcome: Outcome, hosts: Sequence[HostOutcome]) -> HostOutcome | None:
    """Return the report that *outcome* names."""
    for host in hosts:
        if host.attempt == outcome.attempt and host.host == outcome.host:
            return host
    return None


def told(
    message: str, attempts: Mapping[int, Sequence[HostOutcome]], hosts: int, last: int | None
) -> str:
    """Return *message*, which is of the attempt *last*, after how each attempt before that ended.

    *attempts* are the reports by attempt of a job with so many *hosts*. Without *last* the job is in an
    attempt that has not ended.
    """
    sentences = []
    for number, reports in sorted(attempts.items()):
        if last is not None and number >= last:
            break
        ends = [_end_of(report) for report in reports]
        verb = _VERBS[result_of(ends, hosts)]
        why = deciding(ends).message.rstrip(".")
        if last is not None or verb != "succeeded":
            sentences.append(f"Attempt {number} {verb}{f': {why}' if why else ''}.")
    if sentences and message and last is not None:
        message = f"Attempt {last}: {message}"
    return " ".join(filter(None, [*sentences, message]))


_VERBS: Final[dict[Result, str]] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "disrupted": "was preempted or stopped",
    "unknown": "ended without a word of all hosts",
}


def _end_of(report: HostOutcome) -> HostEnd:
    return HostEnd(
        report.host,
        report.succeeded,
        report.reason,
        report.exit_code,
        message=report.message,
        error=report.error.type if report.error else "",
        finished_at=report.finished_at,
        lost_peer=bool(report.lost_peer),
        stopped_at=report.stopped_at or 0.0,
    )


def failure_without_exception(outcome: Outcome, host: HostOutcome | None) -> JobError:
    """Return the error for a job that ended without a value and without the user's exception."""
    if outcome.status == "cancelled":
        return _about(
            outcome,
            JobCancelledError(
                f"Job {outcome.job_id} was cancelled.",
                hint=f"Its log is kept: kinetic jobs logs {outcome.job_id}",
            ),
        )
    said = outcome.message or (host.message if host else "") or "It left no word of why."
    attempt = f" in attempt {outcome.attempt}" if (outcome.attempt or 1) > 1 else ""
    error = JobFailedError(
        f"Job {outcome.job_id} failed{attempt}: {said}",
        hint=f"Its log: kinetic jobs logs {outcome.job_id}",
    )
    for note in notes_of(outcome, host):
        error.add_note(note)
    return _about(outcome, error)


def remote_error(outcome: Outcome, host: HostOutcome, why: str) -> RemoteError:
    """Return the stand-in for the user's exception, which cannot be rebuilt here because of *why*."""
    info = host.error
    assert info is not None
    headline = f"{info.type}: {info.message}" if info.message else info.type
    error = RemoteError(headline, hint=f"The exception itself could not be rebuilt here: {why}")
    error.remote_type = info.type
    error.remote_message = info.message
    error.remote_traceback = info.traceback
    error.job_id = outcome.job_id
    return annotated(error, outcome, host)


def unreadable(job_id: str, host: HostOutcome, problem: Exception) -> ResultUnreadableError:
    """Return the error for a value that *host* reported and that *problem* keeps from being unpickled."""
    todo = "Install what it needs here, then call result() again."
    if difference(host.python) is not None:
        todo = f"Call result() from Python {minor(host.python)}."
    return ResultUnreadableError(
        f"Job {job_id} succeeded, but its value cannot be unpickled here: "
        f"{why_unreadable(host, problem)}",
        hint=f"The value is kept. {todo}",
    )


def why_unreadable(host: HostOutcome, problem: Exception) -> str:
    """Return why what *host* reported does not unpickle here, with both Pythons where they differ."""
    versions = difference(host.python)
    text = _sentence(problem)
    return text if versions is None else f"it was {versions}. {text}"


def _sentence(problem: Exception) -> str:
    """Return *problem* as a sentence."""
    if isinstance(problem, KineticError):
        return problem.message
    return f"{type(problem).__name__}: {problem}".rstrip(".") + "."


def annotated(error: E, outcome: Outcome, host: HostOutcome) -> E:
    """Add where *error* happened and its remote traceback as notes, once."""
    known = set(getattr(error, "__notes__", ()))
    for note in notes_of(outcome, host):
        if note not in known:
            error.add_note(note)
    return error


def notes_of(outcome: Outcome, host: HostOutcome | None) -> list[str]:
    """Return what a reader of a traceback should know of where it happened."""
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


def _about(outcome: Outcome, error: J) -> J:
    error.job_id = outcome.job_id
    return error
