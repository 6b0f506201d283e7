"""Decide the state of a job from its workload and its pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from kinetic.backends.backend import AttemptView, Ending, Explanation, Observation
from kinetic.job_status import JobStatus
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.manifests.workload import KINDS
from kinetic_k8s.reading.attempts import hosts_of, views
from kinetic_k8s.reading.diagnosis import diagnosis_of
from kinetic_k8s.reading.history import AttemptState, attempts_of
from kinetic_k8s.reading.silence import last_change
from kinetic_k8s.reading.status import State, status_of
from kinetic_k8s.reading.workloads import WorkloadView

if TYPE_CHECKING:
    from kinetic_k8s.reading.queue import QueuePlace

_STATUS: Final = {
    State.PENDING: JobStatus.PENDING,
    State.RUNNING: JobStatus.RUNNING,
    State.SUCCEEDED: JobStatus.SUCCEEDED,
    State.FAILED: JobStatus.FAILED,
    State.ABSENT: JobStatus.NOT_FOUND,
}

IDLE_KIND: Final = "LeaderWorkerSet"
"""It restarts its pods whenever they end, so they stay up after the job, and are billed."""
_AT_ONCE: Final = timedelta(seconds=5)
"""Longest time from a Job to its first pod. A pod that replaces an evicted one comes after 8 s or more."""


@dataclass(frozen=True)
class JobObservation(Observation):
    """An observation with the workload and the pods that it was decided from."""

    obstacles: frozenset[str] = frozenset()
    """Why containers cannot start: a wait explains the job again when this changes."""
    job: Manifest | None = field(default=None, compare=False, repr=False)
    pods: tuple[Manifest, ...] = field(default=(), compare=False, repr=False)


def observation_of(
    job: Manifest | None, pods: Sequence[Manifest], *, begun: bool = False
) -> JobObservation:
    """Decide the observation of *job* and *pods*; *begun*: whether an attempt is known to have begun."""
    found = status_of(job, pods, attempts=int(begun))
    status = _STATUS[found.state]
    vanished = status in (JobStatus.SUCCEEDED, JobStatus.FAILED) and found.over
    silent = job is not None and WorkloadView(job).kind == IDLE_KIND and status is JobStatus.RUNNING
    return JobObservation(
        status,
        found.reason,
        () if job is None else _attempts(job, pods),
        Ending.VANISHED if vanished else Ending.SILENT if silent else Ending.REPORTED,
        obstacles=frozenset().union(*(pod.obstacles for pod in views(pods))),
        job=job,
        pods=tuple(pods),
    )


def _attempts(job: Manifest, pods: Sequence[Manifest]) -> tuple[AttemptView, ...]:
    """Return the attempts that *pods* still show; the store has reports of earlier ones."""
    return tuple(
        AttemptView(each.number, len(each.hosts), each.state.value, each.message)
        for each in attempts_of(job, pods)
        if each.state is not AttemptState.WAITING
    )


def explanation_of(
    seen: JobObservation,
    events: Sequence[Manifest],
    *,
    queue: QueuePlace | None = None,
    now: datetime | None = None,
) -> Explanation:
    """Return why a job has the status *seen*.

    Args:
        seen: The observation.
        events: Events of its workload, of its controllers and of its pods.
        queue: Its place in a queue of Kueue.
        now: The time, to report a job for which nothing changes. None: do not.
    """
    changed = None if seen.job is None else last_change(seen.job, seen.pods)
    waited = 0.0 if now is None or changed is None else (now - changed).total_seconds()
    begun = seen.status is JobStatus.RUNNING
    found = diagnosis_of(seen.job, seen.pods, events, queue=queue, waited=waited, begun=begun)
    # Between two attempts, the report of the earlier one says how it ended.
    ended = any(not pod.alive for pod in hosts_of(views(seen.pods)))
    between = begun and ended
    if found is None or between:
        return Explanation(seen.reason)
    reason = found.reason
    if not seen.status.terminal and seen.reason and seen.reason not in reason:
        reason = f"{seen.reason} {reason}"
    return Explanation(reason, found.remedy, trouble=not seen.status.terminal)


def has_first_pod(job: Manifest, pods: Sequence[Manifest]) -> bool:
    """Return whether one of *pods* is the Job's first, and does not replace an evicted one."""
    begun = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    created = (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    return any(each - begun <= _AT_ONCE for each in created)


def is_part(manifest: Manifest) -> bool:
    """Return whether an object is a part of a workload, as a Job of a JobSet is."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] in KINDS for owner in owners)


def job_of(manifest: Manifest) -> str:
    """Return the id of the job to which an object belongs; empty if it has none."""
    return str((manifest["metadata"].get("labels") or {}).get(JOB_ID, ""))


def belongs_to(manifest: Manifest, job_id: str) -> bool:
    """Return whether an object belongs to the job *job_id*, not to another job with the same k8s name."""
    return job_of(manifest) == job_id
