"""Whether a job's supervisor or resource still exists, decided from its lease, record and attempts."""

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
"""Seconds after the record was written in which a job may not have a lease or a resource yet."""


_SLACK: Final = 5.0
"""Seconds by which a lease may be late: the store's clock is known to within about one second."""


class Presence(Enum):
    """Whether a job's supervisor exists, as seen in the store."""

    ALIVE = "its lease is fresh"
    STARTING = "the job was recorded a moment ago, and has no lease yet"
    LOST = "its lease has expired"
    ABSENT = "there is no lease: it never started, or it has ended"


@dataclass(frozen=True)
class Heartbeat:
    """The lease of a job's supervisor, as seen in the store. Times are by the store's clock."""

    now: float
    holder: str = ""
    renewed: float | None = None
    """When the lease was written; None if there is none."""
    seconds: float = LEASE_SECONDS
    recorded: float | None = None
    """When the job's record was written, if there is no lease; None if the record is gone as well."""


def presence_of(heartbeat: Heartbeat, *, starting: float = STARTING) -> Presence:
    """Decide whether the supervisor exists."""
    if heartbeat.renewed is not None:
        fresh = heartbeat.now - heartbeat.renewed <= heartbeat.seconds + _SLACK
        return Presence.ALIVE if fresh else Presence.LOST
    if is_starting(heartbeat.recorded, heartbeat.now, begun=False, starting=starting):
        return Presence.STARTING
    return Presence.ABSENT


def is_starting(
    recorded: float | None, now: float, *, begun: bool, starting: float = STARTING
) -> bool:
    """Decide whether a job without a resource may be about to start, rather than gone.

    Its record was written at *recorded*, by the clock of *now*; None if there is no record. A job that
    has *begun* had a resource before.
    """
    return recorded is not None and not begun and now - recorded < starting


def starting_or_gone(
    store: Store, record: JobRecord, verify: Verify, *, starting: float = STARTING
) -> Observation:
    """Return the observation of a job whose resource is certain not to exist: PENDING or NOT_FOUND.

    This is for backends that cannot announce a job before its resource exists. The job has begun if it
    has a claim or a report that *verify* accepts.
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
        reason = f"Its resource was removed after attempt {attempts.latest} had begun."
    return Observation(JobStatus.NOT_FOUND, reason, attempts.views(running=False))
