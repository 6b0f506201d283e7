"""Why a job waits or has failed, and what to do about it: the first place where its cluster reports a cause."""

from __future__ import annotations

from collections.abc import Sequence

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, hosts_of, named, views
from kinetic_k8s.reading.causes import PASSES, QUEUE, Diagnosis
from kinetic_k8s.reading.ended import (
    ending_of,
    exit_of,
    failed_of,
    first_ending,
    first_to_fail,
    was_stopped,
)
from kinetic_k8s.reading.queue import QueuePlace, queued
from kinetic_k8s.reading.waiting import (
    LONG,
    crash_of,
    events_about,
    message_of,
    not_created,
    silent,
    waiting_of,
)
from kinetic_k8s.reading.workloads import WorkloadView


def diagnosis_of(
    workload: Manifest | None,
    pods: Sequence[Manifest],
    events: Sequence[Manifest] = (),
    *,
    queue: QueuePlace | None = None,
    waited: float = 0.0,
    begun: bool = False,
) -> Diagnosis | None:
    """Return why a job does not run or has failed; None if nothing reports it.

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
    if workload is None:
        return None
    seen, hosts, components = _parts(workload, pods)
    if seen.failure:
        return _component_failed(seen, components) or failed_of(seen, hosts)
    if seen.succeeded:
        return None
    if seen.suspended and not any(pod.alive for pod in hosts):
        return _suspended(seen, queue, events)
    if queue is not None and any(pod.gated for pod in hosts):
        return queued(queue)
    return (
        _waiting(seen, [pod for pod in hosts if pod.alive and not pod.started], events)
        or next(filter(None, (crash_of(pod) for pod in hosts if pod.alive)), None)
        or first_ending(seen, hosts)
        or (
            _not_created(seen, hosts, events)
            if _creator_of_missing(seen, hosts, components)
            else None
        )
        or _components(seen, components, events)
        or (silent(seen, hosts, events, waited, begun=begun) if waited >= LONG else None)
    )


def event_fields(workload: Manifest, pods: Sequence[Manifest]) -> list[str]:
    """Return at most two field selectors of events: about what creates the pods, and about a pod that waits."""
    seen, hosts, components = _parts(workload, pods)
    waiting = [pod for pod in (*hosts, *components) if pod.alive and not pod.started]
    creator = _creator_of_missing(seen, hosts, components)
    if seen.suspended:
        creator = (seen.kind, seen.name)
    fields = []
    if creator is not None:
        fields.append(f"involvedObject.kind={creator[0]},involvedObject.name={creator[1]}")
    if waiting:
        fields.append(f"involvedObject.uid={waiting[0].uid}")
    return fields


def _parts(
    workload: Manifest, pods: Sequence[Manifest]
) -> tuple[WorkloadView, list[PodView], list[PodView]]:
    """Return views of a workload, its hosts, and its components of Pathways."""
    found = views(pods)
    return WorkloadView(workload), hosts_of(found), [pod for pod in found if not pod.runs_function]


def _creator_of_missing(
    workload: WorkloadView, hosts: Sequence[PodView], components: Sequence[PodView]
) -> tuple[str, str] | None:
    """Return kind and name of what is to create a pod that does not exist; None if all exist."""
    exist = {True: len(hosts), False: len({(pod.role, pod.host) for pod in components})}
    expected = {True: workload.hosts, False: workload.components}
    for group in sorted(workload.groups, key=lambda group: not group.runs_function):
        if exist[group.runs_function] < expected[group.runs_function]:
            return group.kind, group.name
    return None


def _waiting(
    workload: WorkloadView, pods: Sequence[PodView], events: Sequence[Manifest]
) -> Diagnosis | None:
    """Return why *pods* have not started; if they wait for several reasons, the one that matters most."""
    found = {
        pod.host: waiting_of(pod, events_about(pod.uid, events), workload=workload.name)
        for pod in pods
    }
    causes = {host: why for host, why in found.items() if why is not None}
    if not causes:
        return None
    chosen = min(causes.values(), key=lambda why: why.cause in PASSES)
    if workload.hosts == 1:
        return chosen
    alike = [host for host, why in causes.items() if why.reason == chosen.reason]
    return chosen.of(f"{named(alike).capitalize()}: ")


def _components(
    workload: WorkloadView, pods: Sequence[PodView], events: Sequence[Manifest]
) -> Diagnosis | None:
    """Return what keeps a component of Pathways from running: without it, the head waits for devices."""
    newest = {(pod.role, pod.host): pod for pod in pods}  # *pods* have the newest last.
    for (role, host), pod in sorted(newest.items()):
        about = events_about(pod.uid, events)
        waits = None if pod.started else waiting_of(pod, about, workload=workload.name)
        why = waits or crash_of(pod)
        # Those that ended by themselves, and were not stopped or disrupted.
        ends = [
            each
            for each in pods
            if (each.role, each.host) == (role, host)
            and not (each.alive or each.disruption or was_stopped(each))
            and ending_of(each) is not None
        ]
        if why is None and (not pod.alive or len(ends) > 1) and ends:
            times = f"{len(ends)} times, last with" if len(ends) > 1 else "with"
            why = Diagnosis("crash", f"Its pod has ended {times} {exit_of(ends[-1].ends)}")
        if why is not None:
            return why.of(f"{role} {host} does not run. ")
    return None


def _component_failed(workload: WorkloadView, components: Sequence[PodView]) -> Diagnosis | None:
    """Return how the component of Pathways ended by which the job failed; None if the head failed."""
    name = workload.failed_component
    if not name:
        return None
    first = first_to_fail([pod for pod in components if not pod.alive])
    why = None if first is None else ending_of(first)
    if first is None or why is None:
        message = workload.failure.get("message")
        return Diagnosis("component", f"The component {name} of Pathways failed: {message}.")
    return why.of(f"{first.role} {first.host} failed. ")


def _not_created(
    workload: WorkloadView, hosts: Sequence[PodView], events: Sequence[Manifest]
) -> Diagnosis | None:
    why = not_created(workload, events)
    missing = sorted(set(range(workload.hosts)) - {pod.host for pod in hosts})
    if why is None or not missing or len(missing) == workload.hosts:
        return why
    return why.of(f"{named(missing).capitalize()}: ")


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
        resumed = '"replicas":1' if workload.kind == "LeaderWorkerSet" else '"suspend":false'
        return Diagnosis(
            "suspended",
            "It is suspended.",
            # A submit over a slow connection creates the Job suspended. If the submit was interrupted,
            # objects that the pod needs are missing, so resuming the Job would not help.
            "If its submit was interrupted, clean it up and submit it again. If it was suspended on purpose, "
            f"resume it: kubectl patch {workload.kind.lower()} {workload.name}{workload.in_namespace} "
            f"--type merge -p '{{\"spec\":{{{resumed}}}}}'",
        )
    about = events_about(workload.controllers, events)
    stopped = [message_of(event) for event in about if event.get("reason") == "Stopped"]
    why_stopped = f" {stopped[-1].rstrip('.')}." if stopped else ""
    return Diagnosis("queued", f"The job waits in the queue {name!r}.{why_stopped}")
