"""Run a command in a running job, beside its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError, JobError
from kinetic.job_status import JobStatus

if TYPE_CHECKING:
    from kinetic.jobs.handle import JobHandle

SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")


def execute(
    handle: JobHandle, command: Sequence[str], *, host: int = 0, terminal: bool = False
) -> int:
    """Run *command* on *host* of the job, with this process's streams; return its exit code.

    It has the folder and the environment of the function's process.

    Raises:
        InvalidRequestError: There is no such host.
        JobError: The job does not run, or not where it can be reached.
    """
    record = handle._record
    if host >= record.hosts:
        raise InvalidRequestError(
            f"Job {record.job_id} has no host {host}.",
            hint=f"Its last one is host {record.hosts - 1}; they are counted from 0.",
        )
    status = handle.status()
    if status is not JobStatus.RUNNING:
        raise JobError(
            f"Job {record.job_id} is {status.value}: a command can run in it only while it is RUNNING.",
            hint=f"Why: kinetic jobs status {record.job_id}",
            job_id=record.job_id,
        )
    return handle._services.backend.execute(record, command, host=host, terminal=terminal)
