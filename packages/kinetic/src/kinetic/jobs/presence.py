"""Whether what keeps a job is still there, as the store shows it: its lease, its record's age, its attempts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kinetic_payload.layout import LEASE_SECONDS, JobObjects

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation
    from kinetic.jobs.attempts import Verify
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Store

STARTING: Final = 60.0
"""Seconds after its record was written within which a job may be without a lease, or a resource."""


_SLACK: Final = 5.0
"""Seconds by which a lease may be late: the store's clock is known to about one."""


class Standing(Enum):
    """What can be told of a job's supervisor from afar."""

    KEPT = "it was heard of lately"
    STARTING = "it may be about to start"
    LOST = "it was not heard of for longer than it should have been"
    NONE = "there is no trace of it: it never started, or all is over"


@dataclass(frozen=True)
class Signs:
    """What the store knows of a job's supervisor. Times are by the store's clock."""

    now: float
    holder: str = ""
    renewed: float | None = None
    """When the lease was written; None if there is none."""
    seconds: float = LEASE_SECONDS
    recorded: float | None = None
    """When the job's record was written, where there is no lease; None if it is gone, too."""


def standing_of(signs: Signs, *, starting: float = STARTING) -> Standing:
    """Decide what became of the supervisor."""
    if signs.renewed is not None:
        fresh = signs.now - signs.renewed <= signs.seconds + _SLACK
        return Standing.KEPT if fresh else Standing.LOST
    if is_starting(signs.recorded, signs.now, begun=False, starting=starting):
        return Standing.STARTING
    return Standing.NONE


def is_starting(
    recorded: float | None, now: float, *, begun: bool, starting: float = STARTING
) -> bool:
    """Decide whether a job of which nothing is there may be about to start, rather than gone.

    Its record was written at *recorded*, by the clock that says *now*; None if that is gone, too. What has
    *begun* was there before. A lease may come a moment after that.
    """
    return recorded is not None and not begun and now - recorded < starting


def starting_or_gone(
    store: Store, record: JobRecord, verify: Verify, *, starting: float = STARTING
) -> Observation:
    """Return what to say of a job whose resource is certain not to exist: PENDING or NOT_FOUND.

    For a backend that cannot announce a job before its resource exists. Only a claim or a report that
    *verify* takes for the job's says that it has begun.
    """
    from kinetic.backends.backend import Observation
    from kinetic.job_status import JobStatus
    from kinetic.jobs.attempts import attempts_of

    handle = store.stat(JobObjects(record.job_id).handle)
    if handle is None:
        return Observation(JobStatus.NOT_FOUND)
    attempts = attempts_of(store, record, verify)
    begun = attempts.latest > 0
    if is_starting(handle.updated, store.now(), begun=begun, starting=starting):
        return Observation(JobStatus.PENDING, "It was submitted, and is about to start.")
    reason = "It never started: its submit was interrupted."
    if begun:
        reason = f"What ran it was removed after attempt {attempts.latest} had begun."
    return Observation(JobStatus.NOT_FOUND, reason, attempts.views(running=False))
