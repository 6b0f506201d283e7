"""A job's records in its store: reading and checking them, writing the outcome once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Generic, TypeVar

from kinetic.jobs.attempts import Verify
from kinetic.jobs.services import Services
from kinetic.user_warnings import warn_caller
from kinetic_payload.errors import (
    FutureRecordError,
    IntegrityError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    SignatureError,
    StoreError,
)
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import (
    JobObjects,
    group_of,
    host_outcome_of,
    is_job_id,
    number_in,
)
from kinetic_payload.limits import MOST_INPUTS, read_record
from kinetic_payload.records.batch import GroupManifest
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome, Summary
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.records.storage import write_once
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import parallel_map

R = TypeVar("R", JobRecord, Outcome, HostOutcome, GroupManifest, Summary)


@frozen()
class StoredRecord(Generic[R]):
    """A record, and the bytes that it was read from, which signatures cover."""

    record: R
    data: bytes


def record_bytes(store: Store, job_id: str) -> bytes | None:
    """Return the job's record as it is stored; empty if it is too large, None if there is none."""
    try:
        return read_record(store, JobObjects(job_id).handle)
    except ObjectNotFoundError:
        return None
    except RecordError:
        return b""


def find_outcome(
    store: Store, job_id: str, *, verify: Verify = UNSIGNED.verify
) -> StoredRecord[Outcome] | None:
    """Return the job's final outcome, or None while there is none.

    Raises:
        SignatureError: *verify* refuses the stored outcome.
    """
    try:
        return _read(Outcome, store, job_id, JobObjects(job_id).outcome, verify=verify)
    except ObjectNotFoundError:
        return None


def listed_outcome(store: Store, job_id: str, outcome: bytes | None, verify: Verify) -> Outcome:
    """Return the *outcome* of a job, whose bytes a list of *store* showed; None: it showed the name only.

    Raises:
        RecordError: It is no outcome of this job.
        SignatureError: *verify* refuses it.
    """
    name = JobObjects(job_id).outcome
    return _read(Outcome, store, job_id, name, verify=verify, listed=outcome).record


def find_summary(
    store: Store, job_id: str, verify: Verify, *, listed: bytes | None = None
) -> StoredRecord[Summary] | None:
    """Return what was kept of a job that was cleaned up; None if nothing was.

    Raises:
        SignatureError: *verify* refuses it.
    """
    name = JobObjects(job_id).summary
    try:
        found = _read(Summary, store, job_id, name, verify=verify, listed=listed)
    except ObjectNotFoundError:
        return None
    if {found.record.record.job_id, found.record.outcome.job_id} != {job_id}:
        raise RecordError(f"{store.location}/{name} is the record of another job.")
    return found


def keep_summary(services: Services, job_id: str) -> None:
    """Write what is kept of a job beside its log, before its clean-up, if it has an outcome.

    Raises:
        KineticError: It cannot be written, or is not signed with your key, as the copy would be.
    """
    store, verify = services.store, services.verify
    found = find_outcome(store, job_id, verify=verify)
    if found is None:
        return
    record = _read(JobRecord, store, job_id, JobObjects(job_id).handle, verify=verify).record
    outcome, report = found.record, None
    if outcome.attempt is not None and outcome.host is not None:
        name = JobObjects(job_id).host_outcome(outcome.attempt, outcome.host)
        with suppress(ObjectNotFoundError):
            report = _read(HostOutcome, store, job_id, name, verify=verify).record
    if report is not None:
        error = report.error
        if error is not None:
            stack = error.traceback[-_KEPT_TRACEBACK:]
            error = replace(error, pickled=None, message=error.message[:1000], traceback=stack)
        report = replace(report, value=None, value_repr=None, error=error)
    summary = Summary(job_id=job_id, record=record, outcome=replace(outcome, report=report))
    name = JobObjects(job_id).summary
    store.write(name, services.sign(encode(summary), name))


_KEPT_TRACEBACK = 4000


def write_outcome(services: Services, outcome: Outcome) -> Outcome:
    """Write *outcome* unless the job has one; return the stored outcome."""
    name = JobObjects(outcome.job_id).outcome
    data = write_once(services.store, services.signer, name, encode(outcome))
    return _parse(Outcome, services.store, outcome.job_id, name, data).record


def store_kept(services: Services, job_id: str, folder: str) -> None:
    """Store the results that the *folder* of a job on this machine keeps, so that it can be collected.

    Raises:
        StoreError: The results still cannot be stored; they stay in the folder.
        IntegrityError: The results are not those that the job wrote.
    """
    from kinetic_payload.records.pending_uploads import PendingUploads

    try:
        PendingUploads(folder).store_all(services.store, services.signer)
    except (StoreError, IntegrityError) as error:
        raise type(error)(
            f"The result of job {job_id} could not be stored: {error.message}",
            hint=f"{error.hint or 'Try again later.'}\n{kept_hint(job_id, folder)}",
        ) from error
    except OSError as error:
        raise StoreError(
            f"The result of job {job_id} could not be read: {error}.",
            hint=kept_hint(job_id, folder),
        ) from error


def kept_hint(job_id: str, folder: str) -> str:
    """Return what to do with the result that *folder* keeps."""
    return (
        f"It is kept in {folder}. Store and print it with: kinetic jobs result {job_id}\n"
        "To discard the result, remove that folder."
    )


def find_record(
    store: Store, job_id: str, *, listed: bytes | None = None
) -> StoredRecord[JobRecord] | None:
    """Return the job's record, or None if there is none; that of a batch or a member is in its manifest.

    The store is not read if a listing showed the record's bytes (*listed*).
    """
    group, index = group_of(job_id)
    if group is not None:
        found = find_manifest(store, group)
        if found is None:
            return None
        manifest = found.record
        if index is None:
            return StoredRecord(manifest.job_record, found.data)
        member = manifest.member(index)
        known = member.job_id == job_id and index < manifest.total_expected
        return StoredRecord(member, found.data) if known else None
    try:
        return _read(JobRecord, store, job_id, JobObjects(job_id).handle, listed=listed)
    except ObjectNotFoundError:
        return None


def find_manifest(store: Store, group_id: str) -> StoredRecord[GroupManifest] | None:
    """Return the manifest of a batch, or None if there is none.

    Raises:
        RecordError: It is damaged, or somebody else made it.
    """
    name = JobObjects(group_id).handle
    try:
        found = _read(GroupManifest, store, group_id, name)
    except ObjectNotFoundError:
        return None
    manifest = found.record
    numbers = [number_in(index) for index in manifest.failed]
    if (
        None in numbers
        or not 0 < manifest.total_expected <= MOST_INPUTS
        or manifest.job is None
        or manifest.job.job_id != group_id
        or not is_job_id(f"{manifest.members}-0")
        or group_of(f"{manifest.members}-0") != (group_id, 0)
        or manifest.per_worker < 1
    ):
        raise RecordError(f"{store.location}/{name} is not the manifest of a batch.")
    return found


def _read(
    kind: type[R],
    store: Store,
    job_id: str,
    name: str,
    *,
    verify: Verify = UNSIGNED.verify,
    listed: bytes | None = None,
) -> StoredRecord[R]:
    try:
        data = read_record(store, name, listed=listed)
    except RecordError as error:
        verify(b"", name)  # A signed record is never so large.
        raise _damaged(store, name, error) from error
    verify(data, name)
    return _parse(kind, store, job_id, name, data)


def _parse(kind: type[R], store: Store, job_id: str, name: str, data: bytes) -> StoredRecord[R]:
    from kinetic_payload.records.decode import decode

    place = f"{store.location}/{name}"
    try:
        record = decode(kind, data, name=place)
        named = record.group_id if isinstance(record, GroupManifest) else record.job_id
        if named != job_id:
            # Otherwise a look at this job, or its clean-up, would affect another one.
            raise RecordError(f"{place} is the record of another job, {named[:100]!r}.")
    except FutureRecordError:
        raise
    except RecordError as error:
        raise _damaged(store, name, error) from error
    return StoredRecord(record, data)


def _damaged(store: Store, name: str, error: RecordError) -> RecordError:
    folder = f"{store.location}/{name.rpartition('/')[0]}"
    hint = f"It was damaged after it was written. To get rid of the job, remove {folder}."
    return RecordError(error.message, hint=hint)


def read_reports(store: Store, job_id: str, verify: Verify) -> tuple[HostOutcome, ...]:
    """Return the reports of all hosts, in order of attempt and host.

    A report that cannot be read or verified is skipped with a warning.
    """

    def read(name: str) -> HostOutcome | KineticError | None:
        try:
            return _read(HostOutcome, store, job_id, name, verify=verify).record
        except ObjectNotFoundError:
            return None  # Removed by a clean-up meanwhile.
        except (RecordError, SignatureError) as error:
            return error

    listed = (info.name for info in store.list(JobObjects(job_id).attempts))
    names = [name for name in listed if host_outcome_of(name, job_id) is not None]
    reports: list[HostOutcome] = []
    for found in parallel_map(read, names, threads=store.concurrency):
        if isinstance(found, KineticError):
            warn_caller(f"Skipped: {found.message}")
        elif found is not None:
            reports.append(found)
    return tuple(sorted(reports, key=lambda report: (report.attempt, report.host)))
