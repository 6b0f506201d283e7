"""Look once at a job: its durable outcome first, then its resource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Generic, TypeVar

from kinetic.backends.backend import LogLine, Observation
from kinetic.errors import (
    FutureRecordError,
    KineticError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
    SignatureError,
    StoreError,
)
from kinetic.job_status import JobStatus
from kinetic.notices import warn_caller
from kinetic.outcomes import JobOutcome, deciding_host, status_of
from kinetic.parallel import map_at_once
from kinetic.services import Services
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.ownership import report_of
from kinetic_payload.records import HostOutcome, JobRecord, Outcome, encode
from kinetic_payload.store import ABSENT, Store

_MOST_REPORTS = 5000
"""Of all hosts and attempts together. Whoever can write to a bucket can make any number of objects."""
_MOST_REFUSED = 50
"""Reports that somebody else wrote, or that are damaged: those are not ours to show."""


R = TypeVar("R", JobRecord, Outcome, HostOutcome)


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


def nothing_to_verify() -> None:
    """Say nothing against a record that never left this process."""


def look(
    record: JobRecord, services: Services, *, verify: Callable[[], None] = nothing_to_verify
) -> View:
    """Return the job's status, by its outcome if there is one, else by its resource.

    Nothing is said by a record, or by an outcome, that *verify* or the job's key does not hold for.
    A job whose resource ended without an outcome, and can report nothing any more, gets one here from
    its reports, create-only: whoever sees the end writes it, and the first writer wins. Where it
    cannot be written, because the disk is full for instance, it is true all the same.

    Raises:
        SignatureError: The record or the outcome may be of somebody who can only write to the bucket.
    """
    verify()
    found = _verified_outcome(services, record.job_id)
    if found is not None:
        return _decided(found)
    seen = services.backend.observe(record)
    if seen.unsaved:
        # An outcome that says anything else would be false.
        return View(seen.status, None, seen.reason, seen=seen, unsaved=True)
    if not (seen.lost or seen.vanished or seen.status is JobStatus.NOT_FOUND):
        return View(seen.status, None, seen.reason, seen=seen, unreachable=seen.unreachable)
    # It may have finished between the two looks: the outcome is asked for again before it is made up.
    found = _verified_outcome(services, record.job_id)
    if found is not None:
        return _decided(found)
    seen = replace(seen, reason=services.backend.explain(record, seen).text)
    if seen.lost:
        # It may come back, so its failure is not written in its place. A success that all hosts have
        # reported counts, whether what keeps it comes back or not.
        outcome = services.backend.unreported(record, seen)
        if outcome.status == "succeeded":
            return View(JobStatus.SUCCEEDED, outcome)
        return View(JobStatus.FAILED, None, seen.reason, lost=True)
    # The record goes with clean-up: without it there is nothing to add an outcome to, and with
    # it, but without a resource, the job was not cleaned up; it vanished.
    if services.store.stat(JobObjects(record.job_id).handle) is None:
        return View(seen.status, None, seen.reason, forgotten=True)
    outcome = services.backend.unreported(record, seen)
    try:
        return _decided(_written(services, outcome))
    except StoreError as error:
        # Which may be why the job has none: what cannot be written now could not be written then.
        said = f"{outcome.message} The store cannot be written: {error.message}".strip()
        return View(status_of(outcome), replace(outcome, message=said), said)


def explained(record: JobRecord, view: View, services: Services) -> str:
    """Return why the job is as *view* says, as its backend explains what it saw."""
    if view.seen is None:
        return view.reason
    return services.backend.explain(record, view.seen).text


def _verified_outcome(services: Services, job_id: str) -> Found[Outcome] | None:
    found = find_outcome(services.store, job_id)
    if found is not None:
        services.verify(found.data, JobObjects(job_id).outcome)
    return found


def _decided(found: Found[Outcome]) -> View:
    outcome = found.record
    return View(status_of(outcome), outcome, outcome.message)


def find_outcome(store: Store, job_id: str) -> Found[Outcome] | None:
    """Return the job's final outcome, or None while there is none."""
    try:
        return _read(Outcome, store, JobObjects(job_id).outcome)
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
    found = _read(Outcome, store, name, listed=outcome)
    verify(found.data, name)
    return status_of(found.record)


def write_outcome(services: Services, outcome: Outcome) -> Outcome:
    """Write *outcome* unless there is one; return the one that counts."""
    return _written(services, outcome).record


def _written(services: Services, outcome: Outcome) -> Found[Outcome]:
    name = JobObjects(outcome.job_id).outcome
    data = services.sealed(encode(outcome), name)
    try:
        services.store.write(name, data, if_generation=ABSENT)
    except PreconditionFailedError:
        return _verified_outcome(services, outcome.job_id) or Found(outcome, data)
    return Found(outcome, data)


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


def _read(kind: type[R], store: Store, name: str, *, listed: bytes | None = None) -> Found[R]:
    from kinetic_payload.decoding import decode

    job_id, place = name.partition("/")[0], f"{store.location}/{name}"
    try:
        data = read_record(store, name, listed=listed)
        record = decode(kind, data, name=place)
        if record.job_id != job_id:
            # Believed, it would have a look at this job, or its clean-up, hit another one.
            raise RecordError(f"{place} is the record of another job, {record.job_id[:100]!r}.")
    except FutureRecordError:
        raise
    except RecordError as error:
        folder = f"{store.location}/{job_id}"
        hint = f"It was damaged after it was written. To be rid of the job, remove {folder}."
        raise RecordError(error.message, hint=hint) from error
    return Found(record, data)


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
            found = _read(HostOutcome, store, name)
            services.verify(found.data, name)
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
    for found in map_at_once(read, names[:_MOST_REPORTS], workers=store.concurrency):
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
    return JobOutcome(record.job_id, view.status, message, view.outcome, reports)
