"""Results that could not be stored yet: kept in the job's folder, stored from there later."""

from __future__ import annotations

from collections.abc import Callable

from kinetic.backends.backend import AttemptView, Observation
from kinetic.backends.local.paths import JobFolder
from kinetic.errors import IntegrityError, JobError, StoreError
from kinetic.job_status import JobStatus
from kinetic.user_warnings import warn_caller
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores.store import Store


def observation_of(
    job_id: str,
    folder: JobFolder,
    attempts: tuple[AttemptView, ...],
    *,
    running: bool,
    reason: str,
) -> Observation | None:
    """Return the observation of a job whose result is in its *folder*; None without such a result.

    *reason* is the last reason that the supervisor wrote. While the supervisor or a runner is *running*, that
    process stores the result; afterwards a client stores it when it collects the result.
    """
    pending_uploads = PendingUploads(folder.pending_uploads)
    reports = pending_uploads.host_outcomes()
    if running and (reports or pending_uploads.trouble):
        storing = "The function has ended, and its result is being stored."
        why = pending_uploads.trouble or reason or storing
        return Observation(JobStatus.RUNNING, why, attempts, upload_pending=bool(reports))
    if not reports:
        return None
    returned = all(fields_of(data).get("succeeded") for data in reports.values())
    kept = (
        f"The function has {'returned' if returned else 'failed'}, and its result is not in the store "
        f"yet: it is kept in {folder.pending_uploads}. Store it from this machine with: kinetic jobs result "
        f"{job_id}"
    )
    why = f"{kept}. {reason}" if reason else kept
    return Observation(JobStatus.FAILED, why, attempts, upload_pending=True)


def store_result(
    job_id: str, folder: JobFolder, store: Store, verify: Callable[[bytes, str], None]
) -> None:
    """Store the results in the job's *folder*, so that the job can be collected.

    Raises:
        StoreError: The results still cannot be stored; they stay in the folder.
        IntegrityError: The results are not those that the job wrote.
    """
    try:
        PendingUploads(folder.pending_uploads).store_all(store, verify)
    except (StoreError, IntegrityError) as error:
        raise type(error)(
            f"The result of job {job_id} could not be stored: {error.message}",
            hint=f"{error.hint or 'Try again later.'}\n{_kept_hint(job_id, folder)}",
        ) from error
    except OSError as error:
        raise StoreError(
            f"The result of job {job_id} could not be read: {error}.",
            hint=_kept_hint(job_id, folder),
        ) from error


def trouble_of(folder: JobFolder) -> str:
    """Return why the job's result could not be written to its folder either; empty if it could."""
    return PendingUploads(folder.pending_uploads).trouble


def refuse_to_lose(record: JobRecord, folder: JobFolder, *, decided: bool) -> None:
    """Make sure that the job's *folder*, to be removed, does not hold the only copy of its result.

    If the outcome is *decided* (another machine cancelled the job), the result is removed with a warning.

    Raises:
        JobError: The folder holds the only copy.
    """
    if not PendingUploads(folder.pending_uploads).host_outcomes():
        return
    if decided:
        warn_caller(
            f"Job {record.job_id} has an outcome already. Its result, which was not stored, is removed "
            "with the job."
        )
    else:
        raise JobError(
            f"Job {record.job_id} has ended, and its result is not in the store yet.",
            hint=_kept_hint(record.job_id, folder),
            job_id=record.job_id,
        )


def _kept_hint(job_id: str, folder: JobFolder) -> str:
    return (
        f"It is kept in {folder.pending_uploads}. Store and print it with: kinetic jobs result {job_id}\n"
        "To discard the result, remove that folder."
    )
