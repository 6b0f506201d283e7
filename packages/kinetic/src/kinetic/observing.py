"""Look once at a job: its durable outcome first, then its resource."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kinetic.backends import LogLine, Observation
from kinetic.errors import ObjectNotFoundError, PreconditionFailedError
from kinetic.job_status import JobStatus
from kinetic.outcomes import JobOutcome, deciding_host, status_of
from kinetic.services import Services
from kinetic_payload.layout import JobObjects
from kinetic_payload.records import HostOutcome, JobRecord, Outcome, encode
from kinetic_payload.store import ABSENT, Store

_REPORT = re.compile(r"/host-\d+\.json$")


@dataclass(frozen=True)
class View:
    """What one look at a job saw."""

    status: JobStatus
    outcome: Outcome | None = None
    reason: str = ""


def look(record: JobRecord, services: Services) -> View:
    """Return the job's status, by its outcome if there is one, else by its resource.

    A job whose resource ended without an outcome gets one here, create-only: whoever sees the end
    writes it, and the first writer wins.
    """
    outcome = read_outcome(services.store, record.job_id)
    if outcome is not None:
        return View(status_of(outcome), outcome, outcome.message)
    seen = services.backend.observe(record)
    if not _ended_silently(seen, record, services.store):
        return View(seen.status, None, seen.reason)
    # It may have finished between the two looks: the outcome is asked for again before it is made up.
    outcome = read_outcome(services.store, record.job_id)
    if outcome is None:
        outcome = write_outcome(services.store, services.backend.unreported(record, seen))
    return View(status_of(outcome), outcome, outcome.message)


def _ended_silently(seen: Observation, record: JobRecord, store: Store) -> bool:
    if seen.vanished:
        return True
    # The record goes with clean-up, so a record without a resource was not cleaned up: it vanished.
    return (
        seen.status is JobStatus.NOT_FOUND
        and store.stat(JobObjects(record.job_id).handle) is not None
    )


def read_outcome(store: Store, job_id: str) -> Outcome | None:
    """Return the job's final outcome, or None while there is none."""
    from kinetic_payload.decoding import decode

    name = JobObjects(job_id).outcome
    try:
        return decode(Outcome, store.read(name), name=name)
    except ObjectNotFoundError:
        return None


def write_outcome(store: Store, outcome: Outcome) -> Outcome:
    """Write *outcome* unless there is one; return the one that counts."""
    name = JobObjects(outcome.job_id).outcome
    try:
        store.write(name, encode(outcome), if_generation=ABSENT)
    except PreconditionFailedError:
        return read_outcome(store, outcome.job_id) or outcome
    return outcome


def read_record(store: Store, job_id: str) -> JobRecord | None:
    """Return the job's record, or None where there is none any more."""
    from kinetic_payload.decoding import decode

    name = JobObjects(job_id).handle
    try:
        return decode(JobRecord, store.read(name), name=name)
    except ObjectNotFoundError:
        return None


def log_lines(
    record: JobRecord, services: Services, *, follow: bool = False, tail: int | None = None
) -> Iterator[LogLine]:
    """Iterate over the job's log; each line knows how many hosts the job has."""
    for line in services.backend.log_lines(record, follow=follow, tail=tail):
        yield replace(line, hosts=record.hosts) if record.hosts > 1 else line


def read_reports(store: Store, job_id: str) -> tuple[HostOutcome, ...]:
    """Return what every host of every attempt reported, in that order."""
    from kinetic_payload.decoding import decode

    names = [info.name for info in store.list(JobObjects(job_id).attempts)]
    reports = [
        decode(HostOutcome, store.read(name), name=name) for name in names if _REPORT.search(name)
    ]
    return tuple(sorted(reports, key=lambda report: (report.attempt, report.host)))


def job_outcome(record: JobRecord, services: Services) -> JobOutcome:
    """Return what happened to the job so far, without unpickling anything."""
    view = look(record, services)
    reports = read_reports(services.store, record.job_id)
    message = view.reason
    if view.outcome is not None:
        host = deciding_host(view.outcome, reports)
        message = view.outcome.message or (host.message if host else "") or message
    return JobOutcome(record.job_id, view.status, message, view.outcome, reports)
