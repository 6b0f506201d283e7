"""The outcome of a job, decided from the reports of its hosts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Literal

from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import Verify, attempts_of
from kinetic_payload.errors import ObjectNotFoundError, RecordError, SignatureError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records.attempt_result import (
    HostEnd,
    Result,
    deciding,
    other_failures,
    parse_host_end,
    result_of,
)
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import Store

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation

StopReason = Literal["cancelled", "terminated"]


def outcome_of(
    job_id: str, attempt: int, ends: Sequence[HostEnd], *, stop: StopReason | None
) -> Outcome:
    """Return the job's outcome, decided by how the hosts of its last attempt ended."""
    chosen = deciding(ends)
    status: FinalStatus = "succeeded" if chosen.succeeded else "failed"
    message = chosen.message
    if stop is not None and not chosen.succeeded and chosen.reason in ("terminated", "killed"):
        status = "cancelled" if stop == "cancelled" else "failed"
        message = _STOPPED[stop]
    return Outcome(
        job_id=job_id,
        status=status,
        attempt=attempt,
        host=chosen.host,
        digest=chosen.digest,
        other_failed_hosts=other_failures(ends, chosen) if not chosen.succeeded else (),
        message=message,
        written_by="supervisor",
        written_at=time.time(),
    )


_STOPPED = {
    "cancelled": "The job was stopped on request.",
    "terminated": "The job's supervisor was stopped by SIGTERM, for instance because the machine "
    "shuts down.",
}


def read_end(
    store: Store, job_id: str, attempt: int, host: int, verify: Verify = UNSIGNED.verify
) -> HostEnd | None:
    """Return how a host reported its end; None if it did not report, or *verify* refuses the report.

    An unreadable object in its place counts as the end of a host that did not report.
    """
    name = JobObjects(job_id).host_outcome(attempt, host)
    try:
        data = read_record(store, name)
        verify(data, name)
    except (ObjectNotFoundError, SignatureError):
        return None
    except RecordError as error:
        return _unreadable(host, error)
    return end_from(host, data)


def end_from(host: int, data: bytes) -> HostEnd:
    """Return the end of *host* that *data*, the contents of its report, describes."""
    try:
        return parse_host_end(host, data)
    except RecordError as error:
        return _unreadable(host, error)


def _unreadable(host: int, error: RecordError) -> HostEnd:
    message = f"The report of host {host} cannot be read: {error.message}"
    return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)


def stored_outcome(store: Store, job_id: str, verify: Verify) -> bytes | None:
    """Return the job's outcome in *store*; None if there is none, or *verify* refuses it."""
    name = JobObjects(job_id).outcome
    try:
        data = read_record(store, name)
    except ObjectNotFoundError:
        return None
    except RecordError:
        data = b""  # Too large; accepted only if records are not signed.
    try:
        verify(data, name)
    except SignatureError:
        return None
    return data


def outcome_of_vanished(
    store: Store, record: JobRecord, observation: Observation, *, now: float, verify: Verify
) -> Outcome:
    """Return the outcome that the hosts' reports support, or one with the reason why the job vanished.

    If all hosts of the last attempt succeeded, so did the job. If one of them failed by itself, that is
    the reason. The report of a host that only lost its supervisor is not a reason, unless the job was
    disrupted more often than *record* allows; but its words come first. Reports that *verify* refuses are
    ignored.
    """
    attempts = attempts_of(store, record, verify)
    attempt = attempts.latest
    ends = attempts.ends.get(attempt)
    reported = ""
    if ends:
        chosen = deciding(ends)
        outcome = replace(
            outcome_of(record.job_id, attempt, ends, stop=None), written_by="client", written_at=now
        )
        complete = len(ends) == record.hosts
        killed = chosen.reason == "killed" and not chosen.lost_peer
        failed_by_itself = killed or chosen.reason in ("exception", "exited", "timeout")
        if failed_by_itself or (chosen.succeeded and complete):
            return outcome
        if record.preemptions is not None and not attempts.another_follows(
            retries=record.retries, preemptions=record.preemptions
        ):
            limit = f"preemptions={record.preemptions} allows no other attempt."
            return replace(outcome, message=f"{outcome.message} {limit}".lstrip())
        reported = "" if chosen.succeeded else outcome.message
    message = observation.reason or (
        "Nothing of the job is left: its submit was interrupted, or its resource was removed."
    )
    if observation.status is JobStatus.SUCCEEDED:
        message = "The job ran to its end, but its report was removed from the store afterwards."
    return Outcome(
        job_id=record.job_id,
        status="failed",
        attempt=attempt or None,
        message=f"{reported} {message}".lstrip(),
        written_by="client",
        written_at=now,
    )


@frozen()
class JobOutcome:
    """What happened to a job, per attempt and host, readable without unpickling anything."""

    job_id: str
    status: JobStatus
    message: str
    """What happened, in words. With several attempts, how each ended. Empty while the first one runs."""
    final: Outcome | None
    """The durable outcome; None while there is none."""
    hosts: tuple[HostOutcome, ...]
    """Every report, in order of attempt and host."""
    unreported: Mapping[int, float] = field(default_factory=dict)
    """When each attempt began of which no host has reported, 0 if not known: one may run, the others ended."""

    @property
    def attempts(self) -> dict[int, tuple[HostOutcome, ...]]:
        """The reports by attempt; empty for an attempt of which no host has reported."""
        numbers = sorted({*self.unreported, *(host.attempt for host in self.hosts)})
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


def with_earlier_attempts(
    message: str, attempts: Mapping[int, Sequence[HostOutcome]], hosts: int, last: int | None
) -> str:
    """Return *message*, about the attempt *last*, preceded by how each earlier attempt ended.

    *attempts* are the reports, by attempt, of a job on *hosts* hosts. *last* is None while the latest
    attempt has not ended.
    """
    sentences = []
    for number, reports in sorted(attempts.items()):
        if last is not None and number >= last:
            break
        if not reports:
            # An attempt begins when the one before has ended, so only the latest one can be running.
            if number < max(attempts):
                sentences.append(f"Attempt {number} {_SILENT}.")
            continue
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
    "bad-node": "met a bad node",
    "unknown": "ended, and not every host reported",
}

_SILENT: Final = "ended without a report, as after SIGKILL or the loss of its machine"


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
        began=report.phase != "claim",
    )
