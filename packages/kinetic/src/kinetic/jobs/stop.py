"""Stop a job: cancel it, or remove its resource and its objects."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kinetic.backends.backend import Ending
from kinetic.backends.registry import entry_of
from kinetic.errors import JobError, JobNotFoundError
from kinetic.job_status import JobStatus
from kinetic.jobs.record import submitter
from kinetic.jobs.records import keep_summary, write_outcome
from kinetic.jobs.services import Services
from kinetic.jobs.status import View, asking, explained, look
from kinetic.waiting import Deadline, poll_interval, sleep
from kinetic_payload.errors import KineticError, RecordError, SignatureError, StoreError
from kinetic_payload.files.private import FULL_DISK
from kinetic_payload.layout import JobObjects, group_of, is_job_object
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.store import Store
from kinetic_payload.threads import parallel_map

log = logging.getLogger("kinetic")


def cancel(
    record: JobRecord,
    services: Services,
    *,
    timeout: float,
    poll_interval: float,
    stored: bytes | None = None,
) -> Outcome:
    """Write the outcome `cancelled`, then stop what runs. A job that finished first keeps its outcome.

    *stored* is the record as it was read from the store, if it was. Its signature is checked: only a
    client with the key of the job can cancel it.

    Raises:
        JobNotFoundError: There is no such job.
        SignatureError: The record was signed with another key; nothing was written.
        KineticError: The backend cannot be reached, or permits neither a look nor a stop; nothing was written.
        JobError: A part of the job still runs after *timeout* seconds. Or its supervisor cannot be
            reached from here, and nothing was written.
        StoreError: The outcome cannot be written. If the disk is full, the job was stopped all the same.
    """
    if stored is not None:
        _refuse_without_key(record, services, stored)
    view = look(record, services)
    if view.status is JobStatus.NOT_FOUND:
        raise JobNotFoundError(
            f"There is no job {record.job_id} to cancel.",
            hint="It was cleaned up, or never started.",
            job_id=record.job_id,
        )
    if view.ending is Ending.UNREACHABLE:
        # This raises: the supervisor would not see the outcome, so the job would go on, and lose its value.
        _stop(record, services, timeout, poll_interval)
    if view.ending is Ending.KEPT:
        # The function has already ended: stop what still runs, and leave the result where it is.
        _stop(record, services, timeout, poll_interval)
        view = look(record, services)
        if view.outcome is None:
            raise _not_stored_yet(record, view, services)
    outcome = view.outcome
    if outcome is None:
        _stop(record, services, timeout, poll_interval, dry_run=True)
        outcome = Outcome(
            job_id=record.job_id,
            status="cancelled",
            message="The job was cancelled.",
            cancelled_by=submitter(),
            written_by="client",
            written_at=time.time(),
        )
        try:
            outcome = write_outcome(services, outcome)
        except StoreError as error:
            if not _is_full_disk(error):
                raise
            # The job itself may be filling the disk: its end may free space.
            _stop(record, services, timeout, poll_interval)
            try:
                outcome = write_outcome(services, outcome)
            except StoreError as again:
                raise StoreError(
                    f"Job {record.job_id} was stopped, and its outcome cannot be stored: {again.message}",
                    hint="Make room on that disk and cancel the job again, or remove the job with its log: "
                    f"kinetic jobs cleanup {record.job_id}",
                ) from again.__cause__
    # If this process is killed here, the supervisor or the next look at the job stops it.
    _stop(record, services, timeout, poll_interval)
    return outcome


def _is_full_disk(error: StoreError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in FULL_DISK


def _stop(
    record: JobRecord,
    services: Services,
    timeout: float,
    poll_interval: float,
    **how: bool,
) -> None:
    with asking(record):
        services.backend.stop(record, timeout=timeout, poll_interval=poll_interval, **how)


def _observe(record: JobRecord, services: Services) -> JobStatus:
    with asking(record):
        return services.backend.observe(record).status


def _refuse_without_key(record: JobRecord, services: Services, stored: bytes) -> None:
    try:
        services.refuse_without_key(stored, JobObjects(record.job_id).handle)
    except SignatureError as error:
        refused = f"Job {record.job_id} cannot be cancelled from here: {error.message}"
        if not entry_of(record.backend).on_this_machine:
            raise SignatureError(refused, hint=error.hint) from error
        raise SignatureError(
            refused,
            hint="Cancel it where it was submitted, or copy the file `key` from that KINETIC_HOME. "
            f"A job of this machine is also stopped by: kinetic jobs cleanup {record.job_id}",
        ) from error


def clean_up(
    record: JobRecord,
    services: Services,
    *,
    resource: bool,
    artifacts: bool,
    timeout: float,
    poll_interval: float,
    status: JobStatus | None = None,
    stored: bytes | None = None,
    before_removal: Callable[[], object] = lambda: None,
) -> None:
    """Remove the job's resource and its objects. Logs, with a summary, outputs and shared objects stay.

    *status* saves a look at a job that is known to have ended. *stored* is as for `cancel`. A job of this
    machine is stopped and removed even if its objects in the bucket are damaged or forged.
    *before_removal* is called before the first object is removed: until then any process can collect the
    job.

    Raises:
        JobError: The job still runs, and only its artifacts were to be removed; or the only copy of its
            result is on the machine where it ran.
    """
    status = status or status_to_clean(record, services)
    if artifacts and not resource:
        if not status.terminal:
            raise _still_needed(record, status)
        _await_resource(record, services, timeout)
    if resource:
        if not status.terminal:
            # If the record cannot be read or verified, the removal below still stops the job.
            try:
                cancel(
                    record,
                    services,
                    timeout=timeout,
                    poll_interval=poll_interval,
                    stored=stored,
                )
            except RecordError:
                pass
            except StoreError as error:
                if not _is_full_disk(error):
                    raise  # Otherwise the removal below frees space.
            except SignatureError:
                if not any(job.job_id == record.job_id for job in services.backend.list()):
                    raise  # A supervisor on another machine would not notice.
        _stop(record, services, timeout, poll_interval, remove=True)
    if artifacts:
        if group_of(record.job_id) == (None, None):
            try:
                keep_summary(services, record.job_id)
            except KineticError as error:  # For instance on a full disk, on which this makes room.
                log.info("Lists will not show %s: %s", record.job_id, error.message)
        remove_objects(record.job_id, services.store, before_removal=before_removal)
    if resource and artifacts and not status.terminal:
        # The submit may have seen the record before its removal, and then started the job.
        _stop(record, services, timeout, poll_interval, remove=True)
        remove_objects(record.job_id, services.store)


def _await_resource(record: JobRecord, services: Services, timeout: float) -> None:
    """Wait until the resource has seen how the job ended, a moment after the outcome is written.

    Afterwards the objects can be removed.
    """
    began, deadline = time.monotonic(), Deadline(timeout)
    while not (status := _observe(record, services)).terminal:
        if deadline.passed:
            raise _still_needed(record, status)
        sleep(deadline.at_most(poll_interval(time.monotonic() - began)))


def _still_needed(record: JobRecord, status: JobStatus) -> JobError:
    return JobError(
        f"Job {record.job_id} is {status.value} and needs its objects.",
        hint="Cancel it first, or clean up the resource as well.",
        job_id=record.job_id,
    )


def _not_stored_yet(record: JobRecord, view: View, services: Services) -> JobError:
    reason = explained(record, view, services)
    return JobError(
        f"Job {record.job_id} has ended, and its result is not in the store yet. {reason}",
        hint=f"Store and print it with: kinetic jobs result {record.job_id}",
        job_id=record.job_id,
    )


def status_to_clean(record: JobRecord, services: Services) -> JobStatus:
    """Return the status of a job by its outcome if that is its own, else by its resource.

    Raises:
        JobError: The only copy of its result is on the machine where it ran.
    """
    try:
        view = look(record, services)
        if view.ending is Ending.KEPT and view.status.terminal:
            raise _not_stored_yet(record, view, services)
        return view.status
    except (RecordError, SignatureError):
        # A job whose record cannot be read or verified can still be removed.
        return _observe(record, services)


def remove_objects(
    job_id: str, store: Store, *, before_removal: Callable[[], object] = lambda: None
) -> None:
    """Remove the job's own objects, and no others in its folder.

    The record is removed first: with a record and without other parts, the job would look damaged. The
    outcome is removed last: an interrupted clean-up must not make a job that succeeded look like one
    that vanished. *before_removal* is called before the record is removed: afterwards no other process
    finds the value.
    """
    names = JobObjects(job_id)
    listed = [info.name for info in store.list(names.prefix)]
    found = [name for name in listed if is_job_object(name, job_id)]
    before_removal()
    if names.handle in found:
        store.delete(names.handle)
    rest = [name for name in found if name not in (names.handle, names.outcome)]
    parallel_map(store.delete, rest, threads=store.concurrency)
    # A worker that is started again would run a member without an outcome.
    if group_of(job_id)[1] is None:
        store.delete(names.outcome)
