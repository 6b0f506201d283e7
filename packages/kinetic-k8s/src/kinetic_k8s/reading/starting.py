"""Why the container of a pod has not started, although its pod exists or is about to be created."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.names import KEY_SECRET, environment_secret_name, is_runner_config_map
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.capacity import unscheduled
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.endings import exit_of, failed_init
from kinetic_k8s.reading.events import message_of, unresolved

_MISSING: Final = re.compile(r'(secret|configmap) "([^"]+)" not found')
_FOLLOWER: Final = "follower pod node selector"
"""In what JobSet's webhook replies until the leader has a node: its pods follow it into the same node pool."""
_OWNER_GONE: Final = re.compile(
    r'(?i)\b(?:job|jobset|statefulset|leaderworkerset)s?\.[\w.-]+ "[^"]*" not found'
)
"""In what Kueue's webhook replies if the owner of the pod was deleted a moment ago."""
_CREATED: Final = ("SuccessfulCreate",)
_PROGRESS: Final = ("Pulling", "Pulled", "Created", "Started")
"""Reasons of events that follow the mounting of all volumes."""


def waiting_of(pod: PodView, events: Sequence[Manifest], *, workload: str) -> Diagnosis | None:
    """Return why *pod* of the workload of that name has not started yet.

    *events* are those about the pod, the oldest first.
    """
    scheduled = pod.condition("PodScheduled")
    if not pod.scheduled and scheduled.get("status") == "False":
        return unscheduled(pod, scheduled, events)
    if (failed := failed_init(pod)) is not None:
        return failed
    for container, status, sidecar in _containers(pod):
        found = _container(container, status, events, sidecar=sidecar, workload=workload)
        if found is not None:
            return found
    volumes = unresolved(events, ("FailedMount", "FailedAttachVolume"), until=_PROGRESS)
    return _mounts(message_of(volumes[-1]), workload) if volumes else None


def crash_of(pod: PodView) -> Diagnosis | None:
    """Return which container of *pod* ends again and again, instead of running."""
    for container, status, sidecar in _containers(pod):
        crash = _crash(container, status, sidecar=sidecar)
        if crash is not None:
            return crash
    return None


def not_created(events: Sequence[Manifest]) -> Diagnosis | None:
    """Return why a pod cannot be created; *events* are those about its controllers, the oldest first."""
    latest = unresolved(events, ("FailedCreate", "JobCreationFailed"), until=_CREATED)
    failures = [
        text
        for text in map(message_of, latest)
        if not (_FOLLOWER in text or _OWNER_GONE.search(text))
    ]
    if not failures:
        return None
    # A StatefulSet begins otherwise: `create Pod p in StatefulSet s failed error: …`.
    text = failures[-1].removeprefix("Error creating: ")
    reason = f"The pod cannot be created: {text}"
    for pattern, cause, remedy in _NOT_CREATED:
        if found := re.search(pattern, text):
            return Diagnosis(cause, reason, remedy.format(*found.groups()))
    return Diagnosis("pod-creation", reason)


_NOT_CREATED: Final = (
    (
        r'serviceaccount "([^"]+)" not found',
        "service-account",
        "Create it: kubectl create serviceaccount {0}. Or name another.",
    ),
    (
        r"exceeded quota: ",
        "quota",
        "Wait until other pods of the namespace end, or ask for a larger quota.",
    ),
    (
        r"failed quota: [^:]*: must specify ([\w.,/ -]+)",
        "quota",
        "The namespace's quota requires that pods request {0}: set cpu= and memory=.",
    ),
    (
        r"((?:max|min)imum (\S+) usage per (?:Container|Pod) is \S+?),",
        "limit-range",
        "A LimitRange of the namespace bounds each pod ({0}): choose another {1}=.",
    ),
    (
        r"violates PodSecurity",
        "pod-security",
        "The namespace's policy forbids such pods: use another namespace, or have the policy changed.",
    ),
    (
        r"no PriorityClass with name (\S+) was found",
        "priority-class",
        "Correct the name in pod_overrides, or have the PriorityClass {0} created.",
    ),
    (
        r'RuntimeClass "([^"]+)" not found',
        "runtime-class",
        "Correct the name in pod_overrides, or have the RuntimeClass {0} created.",
    ),
)
"""What the API server replies to the creation of a pod → cause, remedy."""


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
    *,
    sidecar: bool,
    workload: str,
) -> Diagnosis | None:
    if (crash := _crash(container, status, sidecar=sidecar)) is not None:
        return crash
    waiting = (status.get("state") or {}).get("waiting") or {}
    message = str(waiting.get("message") or "")
    match str(waiting.get("reason") or ""):
        case "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull":
            return _image(str(container.get("image") or status.get("image") or ""), message, events)
        case "InvalidImageName":
            return _image_name(message)
        case "CreateContainerConfigError":
            return _config(message, workload)
        case "CreateContainerError" | "RunContainerError":
            return Diagnosis("container", f"The container cannot be created: {message}.")
    return None


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


_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": \w+: ')
"""What the kubelet writes before the error while it waits for its next try."""


def _image(image: str, message: str, events: Sequence[Manifest]) -> Diagnosis:
    # Between two pulls the status may contain only the wait for the next one; the event has the cause.
    pulls = [
        text
        for text in map(message_of, events)
        if text.startswith("Failed to pull image") and image in text
    ]
    text = message if ":" in message.partition('"')[2].partition('"')[2] or not pulls else pulls[-1]
    text = _BACK_OFF.sub("", text).rstrip(".")
    remedy = ""
    lower = text.lower()
    if "no match for platform" in lower:
        remedy = "Build the image for the machine's architecture as well."
    elif re.search(r"forbidden|denied|unauthorized|\bstatus(?: code)?:? 40[13]\b", lower):
        remedy = "Let the service account of the cluster's nodes read that registry."
    elif "not found" in lower:
        remedy = f"Check the name and the tag of the image {image!r}."
    elif any(word in lower for word in ("no such host", "timeout", "connection refused")):
        remedy = "The nodes cannot reach the registry: check its name and the nodes' network."
    return Diagnosis("image", f"The image cannot be pulled: {text}.", remedy)


def _image_name(message: str) -> Diagnosis:
    remedy = "Correct the image's name"
    if "must be lowercase" in message:
        remedy += ": it must not have capital letters"
    return Diagnosis(
        "image-name", f"The image's name is not a valid reference: {message}", f"{remedy}."
    )


def _config(message: str, workload: str) -> Diagnosis:
    if missing := _MISSING.search(message):
        kind = {"secret": "Secret", "configmap": "ConfigMap"}[missing[1]]
        remedy = "Create it, or correct its name in pod_overrides."
        if _is_ours(kind, missing[2], workload):
            remedy = "Submit the job again: the object was removed, or the submit did not finish."
        return Diagnosis(
            "missing-object", f"The {kind} {missing[2]!r} does not exist: {message}.", remedy
        )
    return Diagnosis("container-config", f"The container cannot be configured: {message}.")


def _is_ours(kind: str, name: str, workload: str) -> bool:
    """Return whether a submit creates the object of that name; others are the user's own."""
    if kind == "ConfigMap":
        return is_runner_config_map(name)
    return name in (KEY_SECRET, environment_secret_name(workload))


def _mounts(text: str, workload: str) -> Diagnosis:
    if missing := _MISSING.search(text):
        return _config(missing[0], workload)
    remedy = ""
    if "not found in the list of registered CSI drivers" in text:
        remedy = (
            "Enable the Cloud Storage FUSE CSI driver of the cluster, or leave fuse=True out."
            if "gcsfuse" in text
            else "Install that driver in the cluster."
        )
    return Diagnosis("volume", f"A volume cannot be mounted: {text}", remedy)
