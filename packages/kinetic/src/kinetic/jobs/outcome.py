"""How a job ended: what its hosts reported, and the outcome that follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kinetic.job_status import JobStatus
from kinetic_payload.attempts import HostEnd, deciding, end_in, other_failures
from kinetic_payload.errors import ObjectNotFoundError, RecordError, SignatureError
from kinetic_payload.layout import EXIT_FUNCTION_FAILED, JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.ownership import number_in
from kinetic_payload.records import FinalStatus, JobRecord, Outcome
from kinetic_payload.signing import UNSIGNED
from kinetic_payload.store import Store

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation

Stop = Literal["cancelled", "terminated"]


Verify = Callable[[bytes, str], None]
"""Raises `SignatureError` if the bytes, read from the object of that name, are not by the job."""


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
    """Return how a host reported its end, or None if it did not.

    What *verify* refuses, or what is no report, is the end of a host that did not report, and whose
    place was taken.
    """
    name = JobObjects(job_id).host_outcome(attempt, host)
    try:
        data = read_record(store, name)
        verify(data, name)
        return end_in(host, data)
    except ObjectNotFoundError:
        return None
    except (RecordError, SignatureError) as error:
        message = f"The job did not write what stands for the end of host {host}: {error.message}"
        return HostEnd(host, False, "unreported", EXIT_FUNCTION_FAILED, message=message)


def outcome_of_vanished(
    store: Store, record: JobRecord, observation: Observation, *, now: float, verify: Verify
) -> Outcome:
    """Return the outcome that the hosts' reports support, or one that says how it vanished.

    If all hosts of the last attempt succeeded, so did the job; if one failed by itself, that is
    why. What a host says that merely lost its supervisor explains nothing.
    """
    attempt = _last_attempt(store, record)
    found = [read_end(store, record.job_id, attempt, host, verify) for host in range(record.hosts)]
    ends = [end for end in found if end is not None]
    if ends:
        chosen = deciding(ends)
        complete = len(ends) == record.hosts
        if (chosen.succeeded and complete) or chosen.reason in ("exception", "exited", "timeout"):
            outcome = outcome_of(record.job_id, attempt, ends, stop=None)
            return replace(outcome, written_by="client", written_at=now)
    message = observation.reason or (
        "Nothing of the job is on this machine: its submit was interrupted, or its folder removed."
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


def _last_attempt(store: Store, record: JobRecord) -> int:
    prefix = JobObjects(record.job_id).attempts
    found = (number_in(name.removeprefix(prefix)[:-1]) for name in store.folders(prefix))
    # There is one attempt more than retries, whatever somebody else put there.
    return max((number for number in found if number and number <= record.retries + 1), default=0)
