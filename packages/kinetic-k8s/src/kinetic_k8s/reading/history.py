"""The attempts of a job that its pods still show: on which nodes, and how each ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, views
from kinetic_k8s.reading.endings import ending_of, first_to_fail, was_stopped
from kinetic_k8s.reading.queue import QUEUE
from kinetic_k8s.reading.workloads import WorkloadView


class AttemptState(StrEnum):
    """The state of an attempt, or of one host of it."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"
    """The cluster or the queue ended it, or its node is bad, which is no failure of the job."""


@dataclass(frozen=True)
class HostView:
    """One host of one attempt."""

    host: int
    pod: str
    node: str
    """Empty until a node was found."""
    state: AttemptState
    message: str = ""
    """How it ended."""


@dataclass(frozen=True)
class AttemptView:
    """One attempt of a job."""

    number: int
    """From 1."""
    state: AttemptState
    hosts: tuple[HostView, ...]
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
    return [_attempt(seen, number, grouped[number]) for number in sorted(grouped)]


def _attempt(workload: WorkloadView, number: int, pods: Sequence[PodView]) -> AttemptView:
    by = "The queue" if QUEUE in workload.labels else "The cluster"
    hosts = {
        pod.host: _host(pod, f"{by} stopped it." if workload.suspended and was_stopped(pod) else "")
        for pod in pods
    }
    ordered = tuple(hosts[host] for host in sorted(hosts))
    state = _state([host.state for host in ordered])
    if state in (AttemptState.WAITING, AttemptState.RUNNING, AttemptState.SUCCEEDED):
        return AttemptView(number, state, ordered)
    first = first_to_fail([pod for pod in pods if not pod.alive])
    assert first is not None, "a host has failed or was disrupted"
    decides = hosts[first.host]
    who = f"Host {first.host}: " if workload.hosts > 1 else ""
    return AttemptView(number, decides.state, ordered, f"{who}{decides.message}")


def _host(pod: PodView, taken_away: str) -> HostView:
    if pod.alive:
        state = AttemptState.RUNNING if pod.started else AttemptState.WAITING
        return HostView(pod.host, pod.name, pod.node, state)
    why = ending_of(pod)
    if why is None:
        return HostView(pod.host, pod.name, pod.node, AttemptState.SUCCEEDED)
    disrupted = bool(taken_away) or why.cause in ("disrupted", "node-lost", "bad-node")
    state = AttemptState.DISRUPTED if disrupted else AttemptState.FAILED
    return HostView(pod.host, pod.name, pod.node, state, taken_away or why.reason)


def _state(hosts: Sequence[AttemptState]) -> AttemptState:
    if AttemptState.RUNNING in hosts:
        return AttemptState.RUNNING
    ended = [each for each in hosts if each is not AttemptState.WAITING]
    if not ended:
        return AttemptState.WAITING
    if all(each is AttemptState.SUCCEEDED for each in ended):
        return AttemptState.SUCCEEDED if len(ended) == len(hosts) else AttemptState.RUNNING
    return AttemptState.FAILED
