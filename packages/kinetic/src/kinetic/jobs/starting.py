"""Whether a job without a resource is about to start, or is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kinetic_payload.layout import JobObjects

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation
    from kinetic.jobs.attempts import Verify
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Store

STARTING: Final = 60.0
"""Seconds after the record was written in which a job may not have a resource yet."""


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
    if not begun and store.now() - handle.updated < starting:
        return Observation(JobStatus.PENDING, "It was submitted, and is about to start.")
    reason = "It never started: its submit was interrupted."
    if begun:
        reason = f"Its resource was removed after attempt {attempts.latest} had begun."
    return Observation(JobStatus.NOT_FOUND, reason, attempts.views(running=False))
