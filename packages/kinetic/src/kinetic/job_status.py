"""The five states of a job, as its user sees them."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    """Observable status of a remote job."""

    PENDING = "PENDING"
    """Accepted; nothing of it runs yet."""
    RUNNING = "RUNNING"
    """The function, or what prepares it, is running."""
    SUCCEEDED = "SUCCEEDED"
    """The function returned and its value is stored."""
    FAILED = "FAILED"
    """It raised, died, was cancelled, or could not be prepared; `result()` says which."""
    NOT_FOUND = "NOT_FOUND"
    """Neither an outcome nor a resource: cleaned up, or never registered."""

    @property
    def terminal(self) -> bool:
        """Whether nothing more will happen to the job by itself."""
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)
