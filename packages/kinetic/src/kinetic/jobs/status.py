"""Look once at a job: its durable outcome first, then its resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from kinetic.backends.backend import LogLine, Observation
from kinetic.errors import (
    FutureRecordError,
    JobError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    SignatureError,
    StoreError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.results import JobOutcome, deciding_host, status_of, told
from kinetic.jobs.services import Services
from kinetic.notices import warn_caller
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.ownership import report_of
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signed import write_once
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import parallel_map

_MOST_REPORTS = 5000
"""Of all hosts and attempts together. Whoever can write to a bucket can make any number of objects."""
_MOST_REFUSED = 50
"""Reports that somebody else wrote, or that are damaged: those are not ours to show."""


R = TypeVar("R", JobRecord, Outcome, HostOutcome)
Verify = Callable[[bytes, str], None]
"""Raises `SignatureError` if the bytes, read from the object of that name, are not by the job."""


@dataclass(frozen=True)
class Found(Generic[R]):
    """A record, and the very bytes that it was read from: what is verified is what was read."""

    record: R
    data: bytes


@dataclass(frozen=True)
class View:
    """What one look at a job saw."""

    status: JobStatus
    outcome: Outcome | None = None
    reason: str = ""
    forgotten: bool = False
    """Whether its objects were removed from the store: nothing more will be known of it."""
    lost: bool = False
    """Whether what keeps it was not heard of for too long; it may come back all the same."""
    unreachable: bool = False
    """Whether what keeps it cannot be asked from here, nor stopped."""
    seen: Observation | None = None
    """What the backend saw, where it was asked: it can explain that."""
    unsaved: bool = False
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
    if isinstance(found, Found):
        return _decided(found)
    with asking(record):
        seen = services.backend.observe(record)
    if seen.unsaved:
        # An outcome that says anything else would be false.
        return View(seen.status, None, seen.reason, seen=seen, unsaved=True)
    if not (seen.lost or seen.vanished or seen.status is JobStatus.NOT_FOUND):
        return View(
            seen.status, None, seen.reason, seen=seen, unreachable=seen.unreachable, forged=found
        )
    # It may have finished between the two looks: the outcome is asked for again before it is made up.
    found = _outcome_or_forgery(services, record.job_id)
    if isinstance(found, Found):
        return _decided(found)
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
    stored = _stored_record(services.store, record.job_id)
    if stored is None:
        return View(seen.status, None, seen.reason, forgotten=True)
    outcome = services.backend.unreported(record, seen)
    if found is not None and outcome.digest is None:
        raise found  # It ended in a way that no report tells, and what told it was overwritten.
    try:
        # Without the job's key nobody writes over what may be the job's.
        services.refuse_without_key(stored, JobObjects(record.job_id).handle)
        return _decided(_written(services, outcome))
    except (StoreError, SignatureError) as error:
        # Which may be why the job has none: what cannot be written now could not be written then.
        said = f"{outcome.message} That cannot be stored: {error.message}".strip()
        return View(status_of(outcome), replace(outcome, message=said), said)


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


def _outcome_or_forgery(services: Services, job_id: str) -> Found[Outcome] | SignatureError | None:
    try:
        return find_outcome(services.store, job_id, verify=services.verify)
    except SignatureError as error:
        return error


def _stored_record(store: Store, job_id: str) -> bytes | None:
    try:
        return read_record(store, JobObjects(job_id).handle)
    except ObjectNotFoundError:
        return None
    except RecordError:
        return b""


def _decided(found: Found[Outcome]) -> View:
    outcome = found.record
    return View(status_of(outcome), outcome, outcome.message)


def find_outcome(
    store: Store, job_id: str, *, verify: Verify = UNSIGNED.verify
) -> Found[Outcome] | None:
    """Return the job's final outcome, or None while there is none.

    Raises:
        SignatureError: *verify* does not hold for what is there.
    """
    try:
        return _read(Outcome, store, JobObjects(job_id).outcome, verify=verify)
    except ObjectNotFoundError:
        return None


def listed_status(
    store: Store, job_id: str, outcome: bytes, verify: Callable[[bytes, str], None]
) -> JobStatus:
    """Return the status of a job by its *outcome*, whose bytes a list of *store* showed.

    Raises:
        RecordError: It is no outcome of this job.
        SignatureError: As `look`.
    """
    name = JobObjects(job_id).outcome
    return status_of(_read(Outcome, store, name, verify=verify, listed=outcome).record)


def write_outcome(services: Services, outcome: Outcome) -> Outcome:
    """Write *outcome* unless the job has one; return the one that counts."""
    return _written(services, outcome).record


def _written(services: Services, outcome: Outcome) -> Found[Outcome]:
    name = JobObjects(outcome.job_id).outcome
    data = write_once(services.store, services.signer, name, encode(outcome))
    return _parsed(Outcome, services.store, name, data)


def find_record(
    store: Store, job_id: str, *, listed: bytes | None = None
) -> Found[JobRecord] | None:
    """Return the job's record, or None where there is none any more.

    It is not read where its bytes are known, from a list of the store (*listed*).
    """
    try:
        return _read(JobRecord, store, JobObjects(job_id).handle, listed=listed)
    except ObjectNotFoundError:
        return None


def _read(
    kind: type[R],
    store: Store,
    name: str,
    *,
    verify: Verify = UNSIGNED.verify,
    listed: bytes | None = None,
) -> Found[R]:
    try:
        data = read_record(store, name, listed=listed)
    except RecordError as error:
        verify(b"", name)  # Where records are signed, no record is so large.
        raise _damaged(store, name, error) from error
    verify(data, name)
    return _parsed(kind, store, name, data)


def _parsed(kind: type[R], store: Store, name: str, data: bytes) -> Found[R]:
    from kinetic_payload.records.decode import decode

    job_id, place = name.partition("/")[0], f"{store.location}/{name}"
    try:
        record = decode(kind, data, name=place)
        if record.job_id != job_id:
            # Believed, it would have a look at this job, or its clean-up, hit another one.
            raise RecordError(f"{place} is the record of another job, {record.job_id[:100]!r}.")
    except FutureRecordError:
        raise
    except RecordError as error:
        raise _damaged(store, name, error) from error
    return Found(record, data)


def _damaged(store: Store, name: str, error: RecordError) -> RecordError:
    folder = f"{store.location}/{name.partition('/')[0]}"
    hint = f"It was damaged after it was written. To be rid of the job, remove {folder}."
    return RecordError(error.message, hint=hint)


def log_lines(
    record: JobRecord, services: Services, *, follow: bool = False, tail: int | None = None
) -> Iterator[LogLine]:
    """Iterate over the job's log; each line knows how many hosts the job has."""
    for line in services.backend.log_lines(record, follow=follow, tail=tail):
        yield replace(line, hosts=record.hosts) if record.hosts > 1 else line


def read_reports(services: Services, job_id: str) -> tuple[HostOutcome, ...]:
    """Return what every host of every attempt reported, in that order.

    A report that cannot be read or verified is skipped with a warning: the others still tell
    something. After some dozens of those the rest is not read: each may be of many megabytes.
    """
    store = services.store
    refused: list[str] = []

    def read(name: str) -> HostOutcome | KineticError | None:
        if len(refused) >= _MOST_REFUSED:
            return None
        try:
            found = _read(HostOutcome, store, name, verify=services.verify)
        except ObjectNotFoundError:
            return None  # Cleaned up a moment ago.
        except (RecordError, SignatureError) as error:
            refused.append(name)
            return error
        return found.record

    listed = (info.name for info in store.list(JobObjects(job_id).attempts))
    ours = (name for name in listed if report_of(name, job_id) is not None)
    names = list(islice(ours, _MOST_REPORTS + 1))
    if len(names) > _MOST_REPORTS:
        warn_caller(f"Skipped: all but {_MOST_REPORTS:,} reports of {job_id}.")
    reports: list[HostOutcome] = []
    for found in parallel_map(read, names[:_MOST_REPORTS], threads=store.concurrency):
        if found is None:
            continue
        if isinstance(found, KineticError):
            warn_caller(f"Skipped: {found.message}")
        else:
            reports.append(found)
    if len(refused) >= _MOST_REFUSED:
        warn_caller(
            f"Skipped: all other reports of {job_id}, because so many are not to be trusted."
        )
    return tuple(sorted(reports, key=lambda report: (report.attempt, report.host)))


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
    return replace(found, message=told(message, found.attempts, record.hosts, last))
