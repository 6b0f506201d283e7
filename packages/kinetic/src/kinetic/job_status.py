"""The five states of a job, as its user sees them."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    """Observable status of a remote job."""

    PENDING = "PENDING"
    """Accepted, and not running yet."""
    RUNNING = "RUNNING"
    """The function is running, or is being prepared."""
    SUCCEEDED = "SUCCEEDED"
    """The function returned and its value is stored."""
    FAILED = "FAILED"
    """The function failed, or the job was killed, cancelled or could not be prepared."""
    NOT_FOUND = "NOT_FOUND"
    """There is neither an outcome nor a resource: the job was cleaned up, or never registered."""

    @property
    def terminal(self) -> bool:
        """Whether the job neither waits nor runs any more."""
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)
