"""Look once at a job: its durable outcome first, then its resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kinetic.backends.backend import Observation
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import JobOutcome, deciding_host, status_of, with_earlier_attempts
from kinetic.jobs.records import (
    StoredRecord,
    find_outcome,
    read_reports,
    record_bytes,
    write_outcome,
)
from kinetic.jobs.services import Services
from kinetic_payload.errors import KineticError, SignatureError, StoreError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome


@dataclass(frozen=True)
class View:
    """What one look at a job saw."""

    status: JobStatus
    outcome: Outcome | None = None
    reason: str = ""
    removed: bool = False
    """Whether its objects were removed from the store: nothing more will be known of it."""
    lost: bool = False
    """Whether what keeps it was not heard of for too long; it may come back all the same."""
    unreachable: bool = False
    """Whether what keeps it cannot be asked from here, nor stopped."""
    seen: Observation | None = None
    """What the backend saw, where it was asked: it can explain that."""
    upload_pending: bool = False
    """Whether its result lies where it ran, and is not in the store yet."""
    forged: SignatureError | None = None
    """What is in the place of the outcome of a job that runs, and is not the job's."""


def nothing_to_verify() -> None:
    """Say nothing against a record that never left this process."""


def look(
    record: JobRecord, services: Services, *, verify: Callable[[], None] = nothing_to_verify
) -> View:
    """Return the job's status, by its outcome if there is one, else by its resource.

    Nothing is said by a record, or by an outcome, that *verify* or the job's key does not hold for: what
    somebody else put in the outcome's place counts for nothing while what runs, or what its hosts
    reported, says more. A job whose resource ended without an outcome, and can report nothing any more, gets one here from
    its reports, create-only: whoever sees the end writes it, and the first writer wins. Where it
    cannot be written, because the disk is full for instance, it is true all the same. Where the backend
    cannot tell, nothing is written.

    Raises:
        SignatureError: The record or the outcome may be of somebody who can only write to the bucket.
        KineticError: The backend is not reached, or does not permit to look; the message names the job.
    """
    verify()
    found = _outcome_or_forgery(services, record.job_id)
    if isinstance(found, StoredRecord):
        return _decided(found.record)
    with asking(record):
        seen = services.backend.observe(record)
    if seen.upload_pending:
        # An outcome that says anything else would be false.
        return View(seen.status, None, seen.reason, seen=seen, upload_pending=True)
    if not (seen.lost or seen.vanished or seen.status is JobStatus.NOT_FOUND):
        return View(
            seen.status, None, seen.reason, seen=seen, unreachable=seen.unreachable, forged=found
        )
    # It may have finished between the two looks: the outcome is asked for again before it is made up.
    found = _outcome_or_forgery(services, record.job_id)
    if isinstance(found, StoredRecord):
        return _decided(found.record)
    with asking(record):
        seen = replace(seen, reason=services.backend.explain(record, seen).text)
    if seen.lost:
        # It may come back, so its failure is not written in its place. A success that all hosts have
        # reported counts, whether what keeps it comes back or not.
        outcome = services.backend.unreported(record, seen)
        if outcome.status == "succeeded":
            return View(JobStatus.SUCCEEDED, outcome)
        if found is not None:
            raise found
        return View(JobStatus.FAILED, None, seen.reason, lost=True)
    # The record goes with clean-up: without it there is nothing to add an outcome to, and with
    # it, but without a resource, the job was not cleaned up; it vanished.
    stored = record_bytes(services.store, record.job_id)
    if stored is None:
        return View(seen.status, None, seen.reason, removed=True)
    outcome = services.backend.unreported(record, seen)
    if found is not None and outcome.digest is None:
        raise found  # It ended in a way that no report tells, and what with_earlier_attempts it was overwritten.
    try:
        # Without the job's key nobody writes over what may be the job's.
        services.refuse_without_key(stored, JobObjects(record.job_id).handle)
        return _decided(write_outcome(services, outcome))
    except (StoreError, SignatureError) as error:
        # Which may be why the job has none: what cannot be written now could not be written then.
        message = f"{outcome.message} That cannot be stored: {error.message}".strip()
        return View(status_of(outcome), replace(outcome, message=message), message)


def explained(record: JobRecord, view: View, services: Services) -> str:
    """Return why the job is as *view* says, as its backend explains what it saw."""
    if view.seen is None:
        return view.reason
    with asking(record):
        return services.backend.explain(record, view.seen).text


@contextmanager
def asking(record: JobRecord) -> Iterator[None]:
    """Ask a backend in the block: its errors name the job."""
    try:
        yield
    except (StoreError, JobError):
        raise
    except KineticError as error:
        if record.job_id not in error.message:
            error.message = f"Job {record.job_id}: {error.message}"
            error.args = (error.message,)
        raise


def _outcome_or_forgery(
    services: Services, job_id: str
) -> StoredRecord[Outcome] | SignatureError | None:
    try:
        return find_outcome(services.store, job_id, verify=services.verify)
    except SignatureError as error:
        return error


def _decided(outcome: Outcome) -> View:
    return View(status_of(outcome), outcome, outcome.message)


def job_outcome(
    record: JobRecord, services: Services, *, verify: Callable[[], None] = nothing_to_verify
) -> JobOutcome:
    """Return what happened to the job so far, without unpickling anything."""
    view = look(record, services, verify=verify)
    reports = read_reports(services, record.job_id)
    message = explained(record, view, services)
    if view.outcome is not None:
        host = deciding_host(view.outcome, reports)
        message = view.outcome.message or (host.message if host else "") or message
    found = JobOutcome(record.job_id, view.status, message, view.outcome, reports)
    last = None
    if view.status.terminal:
        last = (view.outcome and view.outcome.attempt) or max(found.attempts, default=None)
    return replace(
        found, message=with_earlier_attempts(message, found.attempts, record.hosts, last)
    )
