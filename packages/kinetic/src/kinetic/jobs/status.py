"""The status of a job: one look at its durable outcome, then at its resource."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kinetic.backends.backend import Ending, Observation
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import unreported_attempts
from kinetic.jobs.outcome import (
    JobOutcome,
    deciding_host,
    outcome_of_vanished,
    status_of,
    with_earlier_attempts,
)
from kinetic.jobs.pending import SHORT, note_reasons, submitted_at
from kinetic.jobs.records import (
    StoredRecord,
    find_outcome,
    read_reports,
    record_bytes,
    write_outcome,
)
from kinetic.jobs.services import Services
from kinetic_payload.errors import KineticError, SignatureError, StoreError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import JobObjects, title_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome


@frozen()
class View:
    """The result of one look at a job."""

    status: JobStatus
    outcome: Outcome | None = None
    reason: str = ""
    removed: bool = False
    """Whether its objects were removed from the store."""
    seen: Observation | None = None
    """The backend's observation, if there was one; `Backend.explain` takes it."""
    forged: SignatureError | None = None
    """Why the outcome that is stored for the running job was refused."""

    @property
    def ending(self) -> Ending | None:
        """How the outcome will be known; None if it is."""
        return None if self.seen is None else self.seen.ending


def nothing_to_verify() -> None:
    """Accept a record that never left this process."""


def look(
    record: JobRecord, services: Services, *, verify: Callable[[], None] = nothing_to_verify
) -> View:
    """Return the job's status: by its outcome if it has one, else by its resource.

    An outcome that is not signed with the job's key is ignored while the resource or the reports of the
    hosts show the status. If the resource ended without an outcome, an outcome is made from the reports
    and written here, create-only: the first writer wins. It is returned even if it cannot be written, for
    instance to a full disk. If the backend does not know the job's state, nothing is written.

    Raises:
        SignatureError: The record or the outcome is not signed with our key.
        KineticError: The backend cannot be reached, or does not permit to look; the message names the job.
    """
    verify()
    view = _look(record, services)
    if view.outcome is not None:
        services.backend.tidy([record], cancelled=view.outcome.status == "cancelled")
    return view


def _look(record: JobRecord, services: Services) -> View:
    found = _outcome_or_forgery(services, record.job_id)
    if isinstance(found, StoredRecord):
        return _view_of(found.record)
    with asking(record):
        seen = services.backend.observe(record)
    if seen.ending is Ending.KEPT:
        # Any outcome would be false until the result is stored.
        return View(seen.status, None, seen.reason, seen=seen)
    if seen.ending not in (Ending.LOST, Ending.VANISHED) and seen.status is not JobStatus.NOT_FOUND:
        return View(seen.status, None, seen.reason, seen=seen, forged=found)
    # It may have ended between the two looks: read the outcome again before making one.
    found = _outcome_or_forgery(services, record.job_id)
    if isinstance(found, StoredRecord):
        return _view_of(found.record)
    with asking(record):
        why = services.backend.explain(record, seen)
        seen = replace(seen, reason=why.text)
    # Clean-up removes the record: without a record there is nothing to write an outcome for. With a
    # record, but without a resource, the job vanished.
    stored = record_bytes(services.store, record.job_id)
    # A member of a batch shares its record with the others: only its batch knows that it was removed.
    removed = stored is None or record.group_id is not None
    if removed and seen.ending is not Ending.LOST:
        return View(seen.status, None, seen.reason, removed=True)
    # The processes that a killed supervisor left must not report after the decision.
    services.backend.tidy([record])
    now, verify = time.time(), services.verify
    outcome = outcome_of_vanished(services.store, record, seen, now=now, verify=verify)
    if why.out_of_memory and outcome.digest is None:  # No report says it.
        outcome = replace(outcome, cause="out-of-memory")
    if seen.ending is Ending.LOST:
        # It may come back, so no failure is written. A success that all hosts have reported counts
        # even if the supervisor does not come back.
        if outcome.status == "succeeded":
            return View(JobStatus.SUCCEEDED, outcome)
        if found is not None:
            raise found
        return View(JobStatus.FAILED, None, seen.reason, seen=seen)
    if found is not None and outcome.digest is None:
        raise found  # No report shows how the job ended, and its outcome was overwritten.
    try:
        # Without the job's key, its outcome must not be overwritten.
        services.refuse_without_key(stored or b"", JobObjects(record.job_id).handle)
        return _view_of(write_outcome(services, outcome))
    except (StoreError, SignatureError) as error:
        # The job may have failed to write it for the same reason.
        message = f"{outcome.message} This outcome cannot be stored: {error.message}".strip()
        return View(status_of(outcome), replace(outcome, message=message), message)


def explained(record: JobRecord, view: View, services: Services) -> str:
    """Return the reason for the status in *view*, as the backend explains it."""
    if view.seen is None:
        return view.reason
    with asking(record):
        return services.backend.explain(record, view.seen).text


@contextmanager
def asking(record: JobRecord) -> Iterator[None]:
    """Add the job's id to errors that a backend raises in the block."""
    try:
        yield
    except (StoreError, JobError):
        raise
    except KineticError as error:
        if record.job_id not in error.message:
            error.message = f"{title_of(record.job_id)}: {error.message}"
            error.args = (error.message,)
        raise


def _outcome_or_forgery(
    services: Services, job_id: str
) -> StoredRecord[Outcome] | SignatureError | None:
    try:
        return find_outcome(services.store, job_id, verify=services.verify)
    except SignatureError as error:
        return error


def _view_of(outcome: Outcome) -> View:
    return View(status_of(outcome), outcome, outcome.message)


def job_outcome(
    record: JobRecord, services: Services, *, verify: Callable[[], None] = nothing_to_verify
) -> JobOutcome:
    """Return what happened to the job so far, without unpickling anything."""
    view = look(record, services, verify=verify)
    reports = read_reports(services.store, record.job_id, services.verify)
    message = explained(record, view, services)
    now = time.time()
    if (
        view.status is JobStatus.PENDING
        and message
        and now >= submitted_at(record.created_at) + SHORT
    ):
        note_reasons(services.store, record.job_id, [(message, now, now)])
    reported = {report.attempt for report in reports}
    unreported = unreported_attempts(services.store, record, services.verify, reported)
    known = JobOutcome(record.job_id, view.status, message, view.outcome, reports, unreported)
    return worded(record, known)


def worded(record: JobRecord, known: JobOutcome) -> JobOutcome:
    """Return what is *known* of a job, with the message that tells how each of its attempts ended."""
    final, reports, message = known.final, known.hosts, known.message
    if final is not None:
        host = deciding_host(final, reports)
        message = final.message or (host.message if host else "") or message
        if final.status == "cancelled":
            # Its hosts only know of a SIGTERM. An outcome by the supervisor names the attempt; one by a client is
            # written before the stop.
            latest = max((report.attempt for report in reports), default=0)
            reports = tuple(
                replace(each, message="It was stopped, because the job was cancelled.")
                if each.attempt == latest
                and each.reason == "terminated"
                and (final.attempt == latest or final.written_at <= each.finished_at)
                else each
                for each in reports
            )
            if final.cancelled_by:
                message = f"The job was cancelled by {final.cancelled_by}."
    found = replace(known, hosts=reports)
    last = None
    if found.status.terminal:
        last = (final and final.attempt) or max(found.attempts, default=None)
    return replace(
        found, message=with_earlier_attempts(message, found.attempts, record.hosts, last)
    )
