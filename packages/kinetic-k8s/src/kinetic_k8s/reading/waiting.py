"""Why the pods of a job have not started: no pod, no node, or a container that cannot run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kinetic_k8s.accelerators import Cpu, parse_accelerator
from kinetic_k8s.errors import UnknownAcceleratorError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.compute_class import COMPUTE_CLASS
from kinetic_k8s.manifests.labels import ACCELERATOR
from kinetic_k8s.manifests.names import KEY_SECRET, environment_secret_name, is_runner_config_map
from kinetic_k8s.manifests.placement import SPOT, placement_of
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.causes import (
    BY_API_SERVER,
    BY_AUTOSCALER,
    BY_KUBELET,
    BY_MOUNT,
    BY_SCHEDULER,
    MISSING_OBJECT,
    Diagnosis,
    explained,
)
from kinetic_k8s.reading.ended import exit_of, failed_init
from kinetic_k8s.reading.preflight import class_command
from kinetic_k8s.reading.workloads import WorkloadView

LONG: Final = 180.0
"""Seconds without progress after which there is something to report. Pods that have a node start sooner."""
_MISSING: Final = re.compile(r'(secret|configmap) "([^"]+)" not found')
_ZONES: Final = re.compile(r"in zones (.+?) associated with this pod")
_AUTOSCALER: Final = ("TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp")
_PASSING: Final = re.compile(
    # JobSet's webhook, until the leader has a node: its pods follow it into the same node pool.
    r"follower pod node selector"
    # Kueue's webhook, if the owner of the pod was deleted a moment ago.
    r'|(?i:\b(?:job|jobset|statefulset|leaderworkerset)s?\.[\w.-]+ "[^"]*" not found)'
)
_PROGRESS: Final = ("Pulling", "Pulled", "Created", "Started")
"""Reasons of events that follow the mounting of all volumes."""
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": \w+: ')
"""What the kubelet writes before the error while it waits for its next try."""


def events_about(
    what: str | Collection[tuple[str, str]], events: Iterable[Manifest]
) -> list[Manifest]:
    """Return the events about the object with this uid, or about any of these kinds and names, the oldest first.

    The Jobs of a JobSet are created again at each restart, with the same names and other uids.
    """

    def last_seen(event: Manifest) -> datetime:
        found = (
            # Events of the scheduler have no count and no lastTimestamp.
            (event.get("series") or {}).get("lastObservedTime")
            or event.get("lastTimestamp")
            or event.get("eventTime")
            or event["metadata"].get("creationTimestamp")
        )
        # Some times have fractions of a second, others have none.
        return datetime.fromisoformat(str(found)) if found else datetime.min.replace(tzinfo=UTC)

    objects = {what} if isinstance(what, str) else what
    found = [
        event
        for event in events
        if (about := event.get("involvedObject") or {}).get("uid") in objects
        or (about.get("kind"), about.get("name")) in objects
    ]
    return sorted(found, key=last_seen)


def message_of(event: Manifest) -> str:
    """Return the event's message."""
    return str(event.get("message") or "").strip()


def _unresolved(
    events: Iterable[Manifest], reasons: Collection[str], *, until: Collection[str]
) -> list[str]:
    """Return the messages of *events* with one of *reasons*, if nothing in *until* came later.

    A cause that was removed leaves its event behind for an hour.
    """
    found: list[str] = []
    for event in events:
        if event.get("reason") in until:
            found = []
        elif event.get("reason") in reasons:
            found.append(message_of(event))
    return found


def not_created(workload: WorkloadView, events: Sequence[Manifest]) -> Diagnosis | None:
    """Return why a pod of *workload* cannot be created."""
    about = events_about(workload.controllers, events)
    latest = _unresolved(about, ("FailedCreate", "JobCreationFailed"), until=("SuccessfulCreate",))
    failures = [text for text in latest if not _PASSING.search(text)]
    if not failures:
        return None
    # A StatefulSet begins otherwise: `create Pod p in StatefulSet s failed error: …`.
    text = failures[-1].removeprefix("Error creating: ")
    return explained(f"The pod cannot be created: {text}", text, BY_API_SERVER, "pod-creation")


def waiting_of(pod: PodView, events: Sequence[Manifest], *, workload: str) -> Diagnosis | None:
    """Return why *pod* of the workload of that name has not started yet.

    *events* are those about the pod, the oldest first.
    """
    scheduled = pod.condition("PodScheduled")
    if not pod.node and scheduled.get("status") == "False":
        return unscheduled(pod, scheduled, events)
    if (failed := failed_init(pod)) is not None:
        return failed
    for container, status, sidecar in _containers(pod):
        crash = _crash(container, status, sidecar=sidecar)
        if found := crash or _container(container, status, events, workload):
            return found
    volumes = _unresolved(events, ("FailedMount", "FailedAttachVolume"), until=_PROGRESS)
    if not volumes:
        return None
    text = f"A volume cannot be mounted: {volumes[-1]}"
    return _missing(volumes[-1], workload) or explained(text, text, BY_MOUNT, "volume")


def unscheduled(
    pod: PodView, scheduled: Mapping[str, Any], events: Sequence[Manifest]
) -> Diagnosis | None:
    """Return why no node was found for *pod*: the words of the scheduler, then those of the autoscaler.

    Args:
        pod: The pod.
        scheduled: Its condition `PodScheduled`, which is false.
        events: Events about the pod, the oldest first.
    """
    text = str(scheduled.get("message") or "no reason given")
    if scheduled.get("reason") == "SchedulingGated":
        return Diagnosis("gated", f"The pod is held back by the cluster: {text}")
    # After that, the scheduler describes why preempting other pods would not help either.
    causes = text.partition("preemption:")[0]
    reason = f"No node accepts the pod: {text}"
    found = explained(
        reason,
        causes,
        BY_SCHEDULER,
        "unschedulable",
        labels=_selector(pod.spec.get("nodeSelector") or {}) or "LABELS",
        add=_how_to_add_nodes(pod),
    )
    last = {event["reason"]: message_of(event) for event in events if event.get("reason")}
    reports = [event["reason"] for event in events if event.get("reason") in _AUTOSCALER]
    if found is None or found.cause == "volume" or not reports:
        return found
    report = last[reports[-1]]
    if "backoff after failed scale-up" in report and "FailedScaleUp" in last:
        report += f" {last['FailedScaleUp']}"
    reason += f" The autoscaler reports: {report}"
    zones = _ZONES.search(report)
    return explained(
        reason, report, BY_AUTOSCALER, zones=f" in {zones[1]}" if zones else ""
    ) or Diagnosis(found.cause, reason, found.remedy)


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={each}" for key, each in labels.items())


def _how_to_add_nodes(pod: PodView) -> str:
    """Return what gives the cluster a node that *pod* selects, as the rest of a sentence."""
    labels = pod.spec.get("nodeSelector") or {}
    try:
        accelerator = parse_accelerator(pod.labels.get(ACCELERATOR, "cpu"), spot=SPOT in labels)
    except UnknownAcceleratorError:  # Of a later version of Kinetic.
        accelerator = Cpu()
    own = placement_of(accelerator).selector
    if not own.items() <= labels.items():  # The head of Pathways runs on other machines.
        own = {}
    if name := labels.get(COMPUTE_CLASS):
        return (
            f"wait until GKE makes one. See what it reports: kubectl describe computeclass {name}"
        )
    if others := _selector({key: value for key, value in labels.items() if key not in own}):
        return (
            f"correct the labels that the pod requires{' beside its accelerator' if own else ''} (nodeSelector in "
            "pod_overrides, pathways_head_selector, pathways_worker_selector, or a flavor of its queue), or add nodes "
            f"with them: {others}"
        )
    return f"add a pool: {class_command(accelerator)}" if own else "correct the pod's affinity."


def crash_of(pod: PodView) -> Diagnosis | None:
    """Return which container of *pod* ends again and again, instead of running."""
    found = (_crash(*each, sidecar=sidecar) for *each, sidecar in _containers(pod))
    return next(filter(None, found), None)


def _containers(pod: PodView) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], bool]]:
    """Yield the spec and the status of each container that must run before the command, then of its own.

    The third value is whether it is a sidecar, such as those of Pathways.
    """
    status = {
        each["name"]: each
        for each in pod.status.get("initContainerStatuses") or ()
        if each.get("name")
    }
    for each in pod.spec.get("initContainers") or ():
        yield each, status.get(each["name"], {}), each.get("restartPolicy") == "Always"
    yield pod.container_spec, pod.container, False


def _container(
    container: Mapping[str, Any],
    status: Mapping[str, Any],
    events: Sequence[Manifest],
    workload: str,
) -> Diagnosis | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    why, text = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if why == "CreateContainerConfigError":
        return _missing(text, workload) or Diagnosis(
            "container-config", f"The container cannot be configured: {text}."
        )
    image = str(container.get("image") or status.get("image") or "")
    if why in ("ImagePullBackOff", "ErrImageNeverPull"):
        why = "ErrImagePull"
    if why == "ErrImagePull":
        # Between two pulls the status may contain only the wait for the next one; the event has the cause.
        failed = f'Failed to pull image "{image}"'
        pulls = [each for each in map(message_of, events) if each.startswith(failed)]
        if pulls and ":" not in text.rpartition('"')[2]:
            text = pulls[-1]
        text = _BACK_OFF.sub("", text)
    reason = {
        "ErrImagePull": "The image cannot be pulled",
        "InvalidImageName": "The image's name is not a valid reference",
    }.get(why, "The container cannot be created")
    return explained(f"{reason}: {text}", text, BY_KUBELET.get(why, ()), image=image)


def _crash(
    container: Mapping[str, Any], status: Mapping[str, Any], *, sidecar: bool
) -> Diagnosis | None:
    state = status.get("state") or {}
    restarts = int(status.get("restartCount") or 0)
    ended = state.get("terminated") or (status.get("lastState") or {}).get("terminated") or {}
    ends = restarts + ("terminated" in state)
    # A container that runs again after one end may have recovered.
    if not ended.get("exitCode") or ends < 1 + ("running" in state):
        return None
    if not sidecar and not restarts:
        return None  # How the command itself ended is not for this module.
    name = container.get("name")
    times = f"{ends} times, last with" if ends > 1 else "with"
    return Diagnosis(
        "sidecar" if sidecar else "crash",
        f"The container {name} has ended {times} {exit_of(ended)}",
    )


def _missing(text: str, workload: str) -> Diagnosis | None:
    """Return which object that a container needs does not exist, if *text* names one."""
    missing = _MISSING.search(text)
    if missing is None:
        return None
    kind, name = {"secret": "Secret", "configmap": "ConfigMap"}[missing[1]], missing[2]
    by_submit = (
        is_runner_config_map(name)
        if kind == "ConfigMap"
        else name in (KEY_SECRET, environment_secret_name(workload))
    )
    return Diagnosis(
        "missing-object",
        f"The {kind} {name!r} does not exist: {missing[0]}.",
        "Submit the job again: the object was removed, or the submit did not finish."
        if by_submit
        else MISSING_OBJECT,
    )


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
        names = {pod.name for pod in hosts}
        created = [
            message_of(event).rpartition(" ")[2]
            for event in events_about(workload.controllers, events)
            if event.get("reason") == "SuccessfulCreate"
        ]
        if begun or not names.issuperset(created):
            return None  # Nothing shows since when the last pod has been gone: it may be seconds.
        return Diagnosis(
            "no-pod",
            f"The cluster has not created {'all pods' if hosts else 'a pod'} of the job for {minutes}, and "
            "reports no reason.",
            f"See what the cluster reports, and whether its {workload.kind} controller runs: "
            f"kubectl describe {workload.kind.lower()} {workload.name}{where}",
        )
    waiting = next((pod for pod in hosts if pod.alive and not pod.started), None)
    if waiting is None:
        return None
    who = f"host {waiting.host}" if workload.hosts > 1 else "the pod"
    see = f"See what it reports: kubectl describe pod {waiting.name}{where}"
    if not waiting.node:
        return Diagnosis(
            "not-scheduled",
            f"No node has been chosen for {who} for {minutes}, and the scheduler reports no reason.",
            see,
        )
    about = events_about(waiting.uid, events)
    last = f": {message_of(about[-1])}" if about else ", and reports no reason."
    return Diagnosis(
        "starting",
        f"The node {waiting.node} has been preparing {who} for up to {minutes}{last}",
        see,
    )


def last_change(workload: Manifest, pods: Sequence[Manifest]) -> datetime | None:
    """Return when something last changed that the objects show: for the age of a silence."""
    times = [each["metadata"].get("creationTimestamp") for each in (workload, *pods)] + [
        condition.get("lastTransitionTime")
        for each in (workload, *pods)
        for condition in (each.get("status") or {}).get("conditions") or ()
    ]
    return max((datetime.fromisoformat(each) for each in times if each), default=None)
