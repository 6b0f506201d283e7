"""The status of a job and of its attempts: decided from conditions, and never from counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, hosts_of, named, views
from kinetic_k8s.reading.causes import QUEUE
from kinetic_k8s.reading.ended import ending_of, first_to_fail, was_stopped
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
            several = sum(pod.alive for pod in found) > 1
            pods_are = "its pods are" if several else "its pod is"
            return WorkloadStatus(State.RUNNING, f"The job is deleted; {pods_are} still ending.")
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
        running = {pod.host for pod in hosts if pod.started}
        missing = sorted(set(range(workload.hosts)) - running)
        reason = (
            f"{len(running)} of {workload.hosts} hosts run; {_wait(missing)}" if missing else ""
        )
        return WorkloadStatus(state, reason)
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
        waiting = [pod.host for pod in hosts if pod not in ended]
        which = (
            f"Its {'pods have' if several else 'pod has'} ended; the job is about to end or retry."
        )
        if waiting:
            have = "have" if len(ended) > 1 else "has"
            which = (
                f"{named([pod.host for pod in ended]).capitalize()} {have} ended; {_wait(waiting)}"
            )
        return WorkloadStatus(state, which)
    if has_run:
        which = (
            "other pods to replace the last ones"
            if several
            else "another pod to replace the last one"
        )
        return WorkloadStatus(State.RUNNING, f"It waits for {which}.")
    return WorkloadStatus(State.PENDING)


def _wait(hosts: Sequence[int]) -> str:
    return f"{named(hosts)} wait{'s' * (len(hosts) == 1)}."


class AttemptState(StrEnum):
    """The state of an attempt, or of one host of it."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"
    """The cluster or the queue ended it, or its node is bad, which is no failure of the job."""


@dataclass(frozen=True)
class AttemptView:
    """One attempt of a job."""

    number: int
    """From 1."""
    hosts: int
    """How many of its hosts have a pod."""
    state: AttemptState
    message: str = ""
    """How it ended: how the host did that ended first."""


def attempts_of(workload: Manifest, pods: Sequence[Manifest]) -> list[AttemptView]:
    """Return the attempts whose pods still exist, the first one first.

    A JobSet removes the pods of an attempt when it restarts, and evicted pods are removed everywhere: there
    may be earlier attempts, of which only the store has reports. Without a count of restarts on a pod, pods
    are counted: those that are gone are missing in the count.

    Args:
        workload: The Job, JobSet or LeaderWorkerSet.
        pods: All pods of the job.
    """
    seen = WorkloadView(workload)
    grouped: defaultdict[int, list[PodView]] = defaultdict(list)
    before: defaultdict[int, int] = defaultdict(int)
    for pod in views(pods):
        if not pod.runs_function:
            continue
        before[pod.host] += 1
        number = before[pod.host] if pod.restarts is None else pod.restarts + 1
        grouped[number].append(pod)
    attempts = []
    for number, those in sorted(grouped.items()):
        states = {pod.host: _end_of(seen, pod) for pod in those}
        found, message = {state for state, _ in states.values()}, ""
        ended = found - {AttemptState.WAITING, AttemptState.RUNNING, AttemptState.SUCCEEDED}
        if AttemptState.RUNNING in found or not ended:
            state = found.pop() if len(found) == 1 else AttemptState.RUNNING
        else:
            first = first_to_fail([pod for pod in those if not pod.alive])
            assert first is not None, "a host has failed or was disrupted"
            state, why = states[first.host]
            message = f"Host {first.host}: {why}" if seen.hosts > 1 else why
        attempts.append(AttemptView(number, len(states), state, message))
    return attempts


def _end_of(workload: WorkloadView, pod: PodView) -> tuple[AttemptState, str]:
    """Return the state of the host of *pod*, and how it ended."""
    if pod.alive:
        return AttemptState.RUNNING if pod.started else AttemptState.WAITING, ""
    why = ending_of(pod)
    if why is None:
        return AttemptState.SUCCEEDED, ""
    if workload.suspended and was_stopped(pod):
        by = "The queue" if QUEUE in workload.labels else "The cluster"
        return AttemptState.DISRUPTED, f"{by} stopped it."
    disrupted = why.cause in ("disrupted", "node-lost", "bad-node")
    return AttemptState.DISRUPTED if disrupted else AttemptState.FAILED, why.reason
