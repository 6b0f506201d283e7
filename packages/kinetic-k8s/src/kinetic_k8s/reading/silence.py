"""What to look at when a job has waited for long and nothing reports why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.events import events_about, events_about_any, message_of, unresolved
from kinetic_k8s.reading.workloads import WorkloadView

LONG: Final = 180.0
"""Seconds without progress after which there is something to report. Pods that have a node start sooner."""


def silent(
    workload: WorkloadView,
    hosts: Sequence[PodView],
    events: Sequence[Manifest],
    waited: float,
    *,
    begun: bool,
) -> Diagnosis | None:
    """Return what is known of a job that has not started for *waited* seconds; None if it runs.

    Args:
        workload: The workload, which is not suspended.
        hosts: The newest pod of each host.
        events: Events about them.
        waited: For how many seconds nothing is known to have changed.
        begun: Whether an attempt is known to have begun.
    """
    minutes = f"{waited / 60:.0f} min"
    where = workload.in_namespace
    if len(hosts) < workload.hosts and all(pod.started for pod in hosts):
        if begun or _has_lost_pod(workload, hosts, events):
            return None  # Nothing shows since when the last pod has been gone: it may be seconds.
        controller = (
            "" if workload.kind == "Job" else f", and whether its {workload.kind} controller runs"
        )
        return Diagnosis(
            "no-pod",
            f"The cluster has not created {'all pods' if hosts else 'a pod'} of the job for {minutes}, and "
            "reports no reason.",
            f"See what the cluster reports{controller}: "
            f"kubectl describe {workload.kind.lower()} {workload.name}{where}",
        )
    waiting = next((pod for pod in hosts if pod.alive and not pod.started), None)
    if waiting is None:
        return None
    who = f"host {waiting.host}" if workload.hosts > 1 else "the pod"
    describe = f"kubectl describe pod {waiting.name}{where}"
    if not waiting.scheduled:
        return Diagnosis(
            "not-scheduled",
            f"No node has been chosen for {who} for {minutes}, and the scheduler reports no reason.",
            f"See what it reports: {describe}",
        )
    about = events_about(waiting.uid, events)
    if pulls := unresolved(about, ("Pulling",), until=("Pulled", "Failed", "BackOff")):
        return Diagnosis(
            "pulling",
            f"The image of {who} has been on its way to the node for up to {minutes}: "
            f"{message_of(pulls[-1])}",
            "Wait: a large image takes minutes. It is faster from a registry in the cluster's region.",
        )
    if running := _running_init(waiting):
        return Diagnosis(
            "init-running",
            f"The init container {running} of {who} has been running for up to {minutes}.",
            f"See its log: kubectl logs {waiting.name}{where} -c {running}",
        )
    return Diagnosis(
        "starting",
        f"The node {waiting.node} has been preparing {who} for up to {minutes}, and reports no reason.",
        f"See what it reports: {describe}",
    )


def _has_lost_pod(
    workload: WorkloadView, hosts: Sequence[PodView], events: Sequence[Manifest]
) -> bool:
    """Return whether a pod was created that is gone now."""
    names = {pod.name for pod in hosts}
    return any(
        event.get("reason") == "SuccessfulCreate"
        and message_of(event).rpartition(" ")[2] not in names
        for event in events_about_any(workload.controllers, events)
    )


def last_change(workload: Manifest, pods: Sequence[Manifest]) -> datetime | None:
    """Return when something last changed that the objects show: for the age of a silence."""
    times = [each["metadata"].get("creationTimestamp") for each in (workload, *pods)] + [
        condition.get("lastTransitionTime")
        for each in (workload, *pods)
        for condition in (each.get("status") or {}).get("conditions") or ()
    ]
    return max((datetime.fromisoformat(each) for each in times if each), default=None)


def _running_init(pod: PodView) -> str:
    """Return the name of the init container that runs; empty if none does, apart from sidecars."""
    running = {
        each["name"]
        for each in pod.status.get("initContainerStatuses") or ()
        if "running" in (each.get("state") or {})
    }
    return next(
        (
            str(each["name"])
            for each in pod.spec.get("initContainers") or ()
            if each["name"] in running and each.get("restartPolicy") != "Always"
        ),
        "",
    )
