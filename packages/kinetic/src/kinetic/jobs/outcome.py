"""How a job ended: what its hosts reported, and the outcome that follows from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import Verify, attempts_of
from kinetic_payload.errors import ObjectNotFoundError, RecordError, SignatureError
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import FinalStatus, Outcome
from kinetic_payload.records.retry import HostEnd, deciding, end_in, other_failures
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import Store

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation

Stop = Literal["cancelled", "terminated"]


def outcome_of(job_id: str, attempt: int, ends: Sequence[HostEnd], *, stop: Stop | None) -> Outcome:
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
    "terminated": "The job's supervisor was told to end (SIGTERM), for instance because the "
    "machine shuts down.",
}


def read_end(
    store: Store, job_id: str, attempt: int, host: int, verify: Verify = UNSIGNED.verify
) -> HostEnd | None:
    """Return how a host reported its end, or None if it did not, or *verify* refuses what is there.

    What is no report is the end of a host that did not report, and whose place was taken.
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
    """Return the end of *host* that *data*, in the place of its report, describes."""
    try:
        return end_in(host, data)
    except RecordError as error:
        return _unreadable(host, error)


def _unreadable(host: int, error: RecordError) -> HostEnd:
    message = f"The job did not write what stands for the end of host {host}: {error.message}"
    return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)


def stored_outcome(store: Store, job_id: str, verify: Verify) -> bytes | None:
    """Return the outcome that the job has in *store*; None if there is none, or *verify* refuses it."""
    name = JobObjects(job_id).outcome
    try:
        data = read_record(store, name)
    except ObjectNotFoundError:
        return None
    except RecordError:
        data = b""  # Too large: the job's only where nothing is signed.
    try:
        verify(data, name)
    except SignatureError:
        return None
    return data


def outcome_of_vanished(
    store: Store, record: JobRecord, observation: Observation, *, now: float, verify: Verify
) -> Outcome:
    """Return the outcome that the hosts' reports support, or one that says how it vanished.

    If all hosts of the last attempt that began succeeded, so did the job; if one failed by itself, that
    is why. What a host says that merely lost its supervisor explains nothing, but that it was disrupted
    once more than *record* allows does. What *verify* refuses counts for nothing.
    """
    attempts = attempts_of(store, record, verify)
    attempt = attempts.latest
    ends = attempts.ends.get(attempt)
    if ends:
        chosen = deciding(ends)
        complete = len(ends) == record.hosts
        killed = chosen.reason == "killed" and not chosen.lost_peer
        by_itself = killed or chosen.reason in ("exception", "exited", "timeout")
        if by_itself or (chosen.succeeded and complete):
            outcome = outcome_of(record.job_id, attempt, ends, stop=None)
            return replace(outcome, written_by="client", written_at=now)
        if record.preemptions is not None and not attempts.another_follows(
            retries=record.retries, preemptions=record.preemptions
        ):
            outcome = outcome_of(record.job_id, attempt, ends, stop=None)
            limit = f"preemptions={record.preemptions} allows no other attempt."
            message = f"{outcome.message} {limit}".lstrip()
            return replace(outcome, message=message, written_by="client", written_at=now)
    message = observation.reason or (
        "Nothing of the job is left: its submit was interrupted, or what ran it was removed."
    )
    if observation.status is JobStatus.SUCCEEDED:
        message = "It ran to its end, but what it reported was removed from the store since."
    return Outcome(
        job_id=record.job_id,
        status="failed",
        attempt=attempt or None,
        message=message,
        written_by="client",
        written_at=now,
    )
