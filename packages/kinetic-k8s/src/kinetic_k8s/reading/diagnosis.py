"""Why a job waits or has failed, and what to do about it.

Each rule looks for one cause, in the place where Kubernetes reports it. Only the rule that matches
gives a remedy. If no rule matches, there is no diagnosis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, hosts_of, named, views
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.endings import (
    ending_of,
    exit_of,
    first_to_fail,
    gone,
    may_follow,
    was_stopped,
)
from kinetic_k8s.reading.events import events_about, events_about_any, message_of
from kinetic_k8s.reading.queue import QUEUE, QueuePlace, queued
from kinetic_k8s.reading.silence import LONG, silent
from kinetic_k8s.reading.starting import crash_of, not_created, waiting_of
from kinetic_k8s.reading.workloads import WorkloadView

_PASSES: Final = ("insufficient", "occupied", "scaling-up", "gated", "cordoned", "node-starting")
"""Causes that may go away by themselves. If hosts wait for several reasons, the others come first."""


def diagnosis_of(
    workload: Manifest | None,
    pods: Sequence[Manifest],
    events: Sequence[Manifest] = (),
    *,
    queue: QueuePlace | None = None,
    waited: float = 0.0,
    begun: bool = False,
) -> Diagnosis | None:
    """Return why a job does not run or has failed; None if no rule matches.

    Args:
        workload: The Job, JobSet or LeaderWorkerSet.
        pods: Its pods.
        events: Events of the workload, of its controllers and of its pods; others are ignored. Some causes
            are reported nowhere else: a missing service account, a quota, a volume that cannot be mounted.
            `event_fields` returns the selectors that find them.
        queue: The job's place in its queue, if Kueue admits it.
        waited: For how many seconds nothing is known to have changed. After a while, that is reported too.
        begun: Whether an attempt is known to have begun, so that pods which are missing existed before.
    """
    found = views(pods)
    if workload is None:
        return None
    seen = WorkloadView(workload)
    hosts = hosts_of(found)
    if seen.failure:
        return _component_failed(seen, found) or _failed(seen, hosts)
    if seen.succeeded:
        return None
    if seen.suspended and not any(pod.alive for pod in hosts):
        return _suspended(seen, queue, events)
    components = [pod for pod in found if not pod.runs_function]
    if queue is not None and any(pod.gated for pod in hosts):
        return queued(queue)
    return (
        _waiting(seen, [pod for pod in hosts if pod.alive and not pod.started], events)
        or _crashing([pod for pod in hosts if pod.alive])
        or _first_ending(seen, hosts)
        or _not_created(seen, hosts, components, events)
        or _components(seen, components, events)
        or (silent(seen, hosts, events, waited, begun=begun) if waited >= LONG else None)
    )


def event_fields(workload: Manifest, pods: Sequence[Manifest]) -> list[str]:
    """Return at most two field selectors of events: about what creates the pods, and about a pod that waits."""
    seen = WorkloadView(workload)
    found = views(pods)
    hosts = hosts_of(found)
    components = [pod for pod in found if not pod.runs_function]
    waiting = [pod for pod in (*hosts, *components) if pod.alive and not pod.started]
    fields = []
    creator = _creator_of_missing(seen, hosts, components)
    if seen.suspended or creator is not None:
        kind, name = (seen.kind, seen.name) if seen.suspended or not creator else creator
        fields.append(f"involvedObject.kind={kind},involvedObject.name={name}")
    if waiting:
        fields.append(f"involvedObject.uid={waiting[0].uid}")
    return fields


def _creator_of_missing(
    workload: WorkloadView, hosts: Sequence[PodView], components: Sequence[PodView]
) -> tuple[str, str] | None:
    """Return kind and name of what is to create a pod that does not exist; None if all exist."""
    workers = {(pod.role, pod.host) for pod in components}
    for group in sorted(workload.groups, key=lambda group: not group.runs_function):
        expected, exist = (
            (workload.hosts, len(hosts))
            if group.runs_function
            else (workload.components, len(workers))
        )
        if exist < expected:
            return group.kind, group.name
    return None


def _waiting(
    workload: WorkloadView, pods: Sequence[PodView], events: Sequence[Manifest]
) -> Diagnosis | None:
    """Return why *pods* have not started; if they wait for several reasons, the one that matters most."""
    causes = {
        pod.host: why
        for pod in pods
        if (why := waiting_of(pod, events_about(pod.uid, events), workload=workload.name))
        is not None
    }
    if not causes:
        return None
    chosen = min(causes.values(), key=lambda why: why.cause in _PASSES)
    if workload.hosts == 1:
        return chosen
    alike = [host for host, why in causes.items() if why.reason == chosen.reason]
    return _prefixed(f"{named(alike).capitalize()}: ", chosen)


def _crashing(pods: Sequence[PodView]) -> Diagnosis | None:
    return next(filter(None, map(crash_of, pods)), None)


def _components(
    workload: WorkloadView, pods: Sequence[PodView], events: Sequence[Manifest]
) -> Diagnosis | None:
    """Return what keeps a component of Pathways from running: without it, the head waits for devices."""
    newest = {(pod.role, pod.host): pod for pod in pods}  # *pods* have the newest last.
    for (role, host), pod in sorted(newest.items()):
        about = events_about(pod.uid, events)
        waits = None if pod.started else waiting_of(pod, about, workload=workload.name)
        why = waits or crash_of(pod)
        ends = [
            each for each in pods if (each.role, each.host) == (role, host) and _has_failed(each)
        ]
        if why is None and (not pod.alive or len(ends) > 1) and ends:
            times = f"{len(ends)} times, last with" if len(ends) > 1 else "with"
            why = Diagnosis("crash", f"Its pod has ended {times} {exit_of(ends[-1].ends)}")
        if why is not None:
            return _prefixed(f"{role} {host} does not run. ", why)
    return None


def _component_failed(workload: WorkloadView, pods: Sequence[PodView]) -> Diagnosis | None:
    """Return how the component of Pathways ended by which the job failed; None if the head failed."""
    component = workload.failed_component
    if not component:
        return None
    first = first_to_fail([pod for pod in pods if not pod.runs_function and not pod.alive])
    why = None if first is None else ending_of(first)
    if first is None or why is None:
        message = workload.failure.get("message")
        return Diagnosis("component", f"The component {component} of Pathways failed: {message}.")
    return _prefixed(f"{first.role} {first.host} failed. ", why)


def _has_failed(pod: PodView) -> bool:
    """Return whether *pod* ended by itself, and not because it was stopped or disrupted."""
    return not (pod.alive or pod.disruption or was_stopped(pod)) and ending_of(pod) is not None


def _not_created(
    workload: WorkloadView,
    hosts: Sequence[PodView],
    components: Sequence[PodView],
    events: Sequence[Manifest],
) -> Diagnosis | None:
    if _creator_of_missing(workload, hosts, components) is None:
        return None
    why = not_created(events_about_any(workload.controllers, events))
    missing = sorted(set(range(workload.hosts)) - {pod.host for pod in hosts})
    if why is None or not missing or len(missing) == workload.hosts:
        return why
    return _prefixed(f"{named(missing).capitalize()}: ", why)


def _suspended(
    workload: WorkloadView, queue: QueuePlace | None, events: Sequence[Manifest]
) -> Diagnosis | None:
    if queue is not None and (why := queued(queue)) is not None:
        return why
    name = workload.labels.get(QUEUE)
    if name is None and workload.held:
        return Diagnosis(
            "suspended",
            "Its submit is not complete, and resumes it at the end.",
            "If the submit was interrupted, clean it up and submit it again. A list of jobs removes it after an hour.",
        )
    if name is None:
        return Diagnosis(
            "suspended",
            "It is suspended.",
            # A submit over a slow connection creates the Job suspended. If the submit was interrupted,
            # objects that the pod needs are missing, so resuming the Job would not help.
            "If its submit was interrupted, clean it up and submit it again. If it was suspended on purpose, "
            f"resume it: kubectl patch {workload.kind.lower()} {workload.name}{workload.in_namespace} "
            f"--type merge -p '{workload.resume_patch}'",
        )
    about = events_about_any(workload.controllers, events)
    stopped = [message_of(event) for event in about if event.get("reason") == "Stopped"]
    why_stopped = f" {stopped[-1].rstrip('.')}." if stopped else ""
    return Diagnosis("queued", f"The job waits in the queue {name!r}.{why_stopped}")


def _failed(workload: WorkloadView, hosts: Sequence[PodView]) -> Diagnosis | None:
    reason = str(workload.failure.get("reason") or "")
    message = str(workload.failure.get("message") or reason or "no details")
    if reason == "DeadlineExceeded":
        return Diagnosis("deadline", f"The job did not end in time: {message}.")
    first = first_to_fail(hosts)
    if first is None:
        if reason in ("PodFailurePolicy", "FailJobSetFailurePolicyAction"):
            return Diagnosis("exit", f"The job failed: {message}.")
        if any(pod.alive or not pod.terminated for pod in hosts):
            return None
        # Pods are also removed after their end: with their node, or once the cluster keeps many.
        whose = "The job's pod" if workload.hosts == 1 else "A pod of the job"
        return Diagnosis(
            "pod-gone",
            f"{whose} was deleted, perhaps with its node or after its end, so how it ended is not known: {message}.",
        )
    if _was_deleted(workload, first, hosts) and reason in _BACKOFF:
        whose = "The job's pod" if workload.hosts == 1 else f"The pod of host {first.host}"
        return Diagnosis(
            "pod-deleted", f"{whose} was deleted, by a person or a program: {message}."
        )
    return _first_ending(workload, hosts)


def _was_deleted(workload: WorkloadView, first: PodView, hosts: Sequence[PodView]) -> bool:
    """Return whether the *first* pod to end was certainly stopped by its deletion, and not with its job."""
    # If the pod of another host is gone, that one may have ended first.
    return (
        was_stopped(first)
        and first.leaving
        and not workload.leaving  # They would have been deleted together.
        and len(hosts) == workload.hosts
    )


_BACKOFF: Final = ("BackoffLimitExceeded", "ReachedMaxRestarts", "FailedJobs")
"""Reasons of a failure after which nothing more is known than that a pod failed or was deleted."""


def _first_ending(workload: WorkloadView, hosts: Sequence[PodView]) -> Diagnosis | None:
    """Return how the host ended that ended first, unless none has failed."""
    if all(pod.alive for pod in hosts):
        return None
    # The grace period of a host that the cluster ends may last longer than the hosts that lose it.
    first = first_to_fail([pod for pod in hosts if not pod.alive or pod.disruption])
    if first is None or (why := ending_of(first)) is None:
        return None
    if workload.hosts == 1:
        return why
    missing = sorted(set(range(workload.hosts)) - {pod.host for pod in hosts})
    reason = f"Host {first.host}: {why.reason}"
    if missing and may_follow(first):
        reason = f"{reason.rstrip('.')}. {gone(missing)}"
    return Diagnosis(why.cause, reason, why.remedy)


def _prefixed(prefix: str, why: Diagnosis) -> Diagnosis:
    return Diagnosis(why.cause, f"{prefix}{why.reason}", why.remedy)
