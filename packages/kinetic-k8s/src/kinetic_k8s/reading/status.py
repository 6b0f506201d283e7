"""The status of a job: decided from conditions, and never from counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, hosts_of, named, views
from kinetic_k8s.reading.workloads import WorkloadView


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
    """The job has ended and no pod that runs its function is alive: nothing can report any more."""


def status_of(
    workload: Manifest | None, pods: Sequence[Manifest], *, attempts: int = 0
) -> WorkloadStatus:
    """Decide the status of a job.

    A job on several hosts is pending until its function has started on all of them, and is running from
    then on. Under Pathways the head decides, which is the only pod that runs the function.

    Args:
        workload: The Job, JobSet or LeaderWorkerSet, or None if there certainly is none.
        pods: All pods of the job, read after the workload.
        attempts: How many attempts are known to have begun, on all hosts. After a pod was evicted and
            before another one replaces it, nothing in the cluster shows that the job ever ran.
    """
    found = [pod for pod in views(pods) if pod.runs_function]
    alive = any(pod.alive for pod in found)
    if workload is None:
        if alive:
            return WorkloadStatus(
                State.RUNNING, f"The job is deleted; {_its_pods(found)} still ending."
            )
        return WorkloadStatus(State.ABSENT, over=True)
    seen = WorkloadView(workload)
    if seen.succeeded:
        return WorkloadStatus(State.SUCCEEDED, over=not alive)
    if failure := seen.failure:
        reason, message = str(failure.get("reason") or ""), str(failure.get("message") or "")
        why = f"{reason}: {message}" if reason and message else reason or message
        return WorkloadStatus(State.FAILED, why, over=not alive)
    return _unfinished(seen, found, attempts)


def _unfinished(workload: WorkloadView, pods: Sequence[PodView], attempts: int) -> WorkloadStatus:
    hosts = hosts_of(pods)
    several = workload.hosts > 1
    ended = [pod for pod in hosts if pod.terminated]
    disrupted = any(pod.disruption for pod in ended)
    started = {pod.host for pod in pods if pod.started}
    if any(pod.started for pod in ended) and not disrupted:
        # A pod that does not exist any more ended before: a job that is about to end replaces none.
        started |= set(range(workload.hosts)) - {pod.host for pod in hosts}
    has_run = attempts > 0 or workload.restarts > 0 or len(started) >= workload.hosts
    state = State.RUNNING if has_run else State.PENDING
    if any(pod.alive and pod.started for pod in pods):
        if any(pod.alive and pod.leaving for pod in pods):
            return WorkloadStatus(
                state, f"Its {'pods are' if several else 'pod is'} being stopped."
            )
        return WorkloadStatus(state, _waiting_for(workload, hosts))
    if workload.leaving:
        return WorkloadStatus(state, "It is being deleted.")
    if workload.suspended and not any(pod.alive for pod in pods):
        return WorkloadStatus(
            State.PENDING,
            "It was suspended while it ran, and waits to be resumed."
            if has_run
            else "It is suspended.",
        )
    if ended and not disrupted:
        return WorkloadStatus(state, _ended(workload, ended, hosts))
    if has_run:
        return WorkloadStatus(
            State.RUNNING,
            "It waits for other pods to replace the last ones."
            if several
            else "It waits for another pod to replace the last one.",
        )
    return WorkloadStatus(State.PENDING)


def _ended(workload: WorkloadView, ended: Sequence[PodView], hosts: Sequence[PodView]) -> str:
    """Return which hosts have ended, and which ones still wait to start."""
    waiting = [pod.host for pod in hosts if pod not in ended]
    if not waiting:
        which = "pods have" if workload.hosts > 1 else "pod has"
        return f"Its {which} ended; the job is about to end or retry."
    have, wait = "have" if len(ended) > 1 else "has", "wait" if len(waiting) > 1 else "waits"
    which = named([pod.host for pod in ended]).capitalize()
    return f"{which} {have} ended; {named(waiting)} {wait}."


def _waiting_for(workload: WorkloadView, hosts: Sequence[PodView]) -> str:
    """Return which hosts have not started; empty if all have."""
    started = {pod.host for pod in hosts if pod.started}
    missing = sorted(set(range(workload.hosts)) - started)
    if not missing:
        return ""
    running = f"{len(started)} of {workload.hosts} hosts run"
    return f"{running}; {named(missing)} wait{'s' * (len(missing) == 1)}."


def _its_pods(pods: Sequence[PodView]) -> str:
    several = sum(pod.alive for pod in pods) > 1
    return "its pods are" if several else "its pod is"
