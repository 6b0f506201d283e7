"""The status of a job: decided from conditions, and never from counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, condition, is_true, views


class State(StrEnum):
    """The phase of a job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABSENT = "ABSENT"
    """Neither a resource nor a pod exists."""


@dataclass(frozen=True)
class WorkloadStatus:
    """The state of a job in its cluster."""

    state: State
    reason: str = ""
    """One sentence of detail, if there is any."""
    over: bool = False
    """The job has ended and none of its pods is alive: nothing can report any more."""


def status_of(
    job: Manifest | None, pods: Sequence[Manifest], *, attempts: int = 0
) -> WorkloadStatus:
    """Decide the status of a job on one host.

    Args:
        job: The Job, or None if there certainly is none.
        pods: All pods of the job, read after the Job.
        attempts: How many attempts are known to have begun. After a pod was evicted and before another
            one replaces it, nothing in the cluster shows that the job ever ran.
    """
    found = views(pods)
    alive = any(pod.alive for pod in found)
    if job is None:
        if alive:
            return WorkloadStatus(State.RUNNING, "The job is deleted; its pod is still ending.")
        return WorkloadStatus(State.ABSENT, over=True)
    if is_true(job, "Complete") or is_true(job, "SuccessCriteriaMet"):
        return WorkloadStatus(State.SUCCEEDED, over=not alive)
    for kind in ("Failed", "FailureTarget"):
        if is_true(job, kind):
            return WorkloadStatus(State.FAILED, _reason_of(job, kind), over=not alive)
    return _unfinished(job, found, attempts)


def _unfinished(job: Manifest, pods: Sequence[PodView], attempts: int) -> WorkloadStatus:
    if any(pod.alive and pod.started for pod in pods):
        leaving = any(pod.alive and pod.leaving for pod in pods)
        return WorkloadStatus(State.RUNNING, "Its pod is being stopped." if leaving else "")
    before = max(attempts, sum(pod.started for pod in pods))
    if job["spec"].get("suspend") and not any(pod.alive for pod in pods):
        return WorkloadStatus(
            State.PENDING,
            "It was suspended while it ran, and waits to be resumed."
            if before
            else "It is suspended.",
        )
    if pods and pods[-1].terminated and not pods[-1].disruption:
        return WorkloadStatus(State.RUNNING, "Its pod has ended; the job is about to end or retry.")
    if before:
        return WorkloadStatus(State.RUNNING, "It waits for another pod to replace the last one.")
    return WorkloadStatus(State.PENDING)


def _reason_of(job: Manifest, kind: str) -> str:
    found = condition(job, kind)
    reason, message = str(found.get("reason") or ""), str(found.get("message") or "")
    return f"{reason}: {message}" if reason and message else reason or message
