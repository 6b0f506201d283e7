"""Why a job waits or has failed, and what to do about it.

Each rule looks for one cause, in the place where Kubernetes reports it. Only the rule that matches
gives a remedy. If no rule matches, there is no diagnosis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView, condition, is_true, views

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_SIGNALS: Final = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_MISSING: Final = re.compile(r'(secret|configmap) "([^"]+)" not found')
_QUOTA: Final = re.compile(r"exceeded quota: [^\n]*")
_EXECUTABLE: Final = re.compile(r'exec: "([^"]+)": (?:executable file not found|stat )')


@dataclass(frozen=True)
class Diagnosis:
    """A cause, with the message of the component that reports it."""

    cause: str
    """An identifier for programs: `unschedulable`, `image`, `out-of-memory` and so on."""
    reason: str
    remedy: str = ""


def diagnosis_of(
    job: Manifest | None, pods: Sequence[Manifest], events: Sequence[Manifest] = ()
) -> Diagnosis | None:
    """Return why a job on one host does not run or has failed; None if no rule matches.

    Args:
        job: The Job.
        pods: Its pods.
        events: Events of the Job and of its pods; others are ignored. Some causes are reported
            nowhere else: a missing service account, a quota, a volume that cannot be mounted.
    """
    found = views(pods)
    last = found[-1] if found else None
    if job is not None and is_true(job, "Failed"):
        return _failed(job, last)
    if last is not None and last.alive:
        return None if last.started else _waiting(last, _events_about(last.uid, events))
    if last is not None and (ended := _ended(last)) is not None:
        return ended
    if job is not None and job["spec"].get("suspend"):
        return _suspended(job, _events_about(job["metadata"]["uid"], events))
    if job is not None and last is None:
        return _not_created(_events_about(job["metadata"]["uid"], events))
    return None


def _waiting(pod: PodView, events: Sequence[Manifest]) -> Diagnosis | None:
    """Return why a pod has not started yet."""
    scheduled = pod.condition("PodScheduled")
    if not pod.scheduled and scheduled.get("status") == "False":
        return _unschedulable(pod, scheduled)
    for init in pod.status.get("initContainerStatuses") or ():
        ended = (init.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            return Diagnosis(
                "init",
                f"The init container {init['name']} failed with exit code {ended['exitCode']}: "
                f"{_last_line(ended)}",
            )
    reason, message = str(pod.waiting.get("reason") or ""), str(pod.waiting.get("message") or "")
    match reason:
        case "ErrImagePull" | "ImagePullBackOff":
            return _image(pod, message, events)
        case "InvalidImageName":
            return Diagnosis(
                "image-name", message, "Correct the image's name: it must not have capital letters."
            )
        case "CreateContainerConfigError":
            return _config(message)
        case "CreateContainerError" | "RunContainerError":
            return Diagnosis("container", f"The container cannot be created: {message}.")
        case "ContainerCreating" | "":
            return _mounts(events)
    return None


def _unschedulable(pod: PodView, scheduled: Mapping[str, Any]) -> Diagnosis:
    text = str(scheduled.get("message") or "no reason given")
    if scheduled.get("reason") == "SchedulingGated":
        return Diagnosis("gated", f"The pod is held back by the cluster: {text}")
    spec = pod.manifest.get("spec") or {}
    requests = spec["containers"][0].get("resources", {}).get("requests", {})
    # The scheduler lists all causes with the number of their nodes. A node that only lacks room fits otherwise.
    for resource in re.findall(r"Insufficient ([\w./-]+\w)", text):
        remedy = "Wait until other jobs end, or add nodes."
        if resource in requests:
            remedy = (
                f"The pod requests {requests[resource]} of {resource}: wait until other jobs end, "
                "request less, or add nodes."
            )
        return Diagnosis("insufficient", f"No node has room for the pod: {text}", remedy)
    if "node affinity/selector" in text:
        wanted = ", ".join(
            f"{key}={value}" for key, value in (spec.get("nodeSelector") or {}).items()
        )
        return Diagnosis(
            "no-node",
            f"No node is of the kind that the job requests: {text}",
            f"Add a node pool whose nodes have the labels {wanted}, or choose another accelerator."
            if wanted
            else "",
        )
    if "untolerated taint" in text:
        return Diagnosis(
            "taint", f"Every node rejects the pod: {text}", "Add nodes without that taint."
        )
    return Diagnosis("unschedulable", f"No node accepts the pod: {text}")


def _image(pod: PodView, message: str, events: Sequence[Manifest]) -> Diagnosis:
    # Between two pulls the status may contain only the wait for the next one; the event has the cause.
    pulls = [text for text in map(_message, events) if text.startswith("Failed to pull image")]
    text = message if ":" in message.partition('"')[2].partition('"')[2] or not pulls else pulls[-1]
    image = str(pod.container.get("image") or "")
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
    return Diagnosis("image", f"The image cannot be pulled: {text}", remedy)


def _config(message: str) -> Diagnosis:
    if missing := _MISSING.search(message):
        kind = {"secret": "Secret", "configmap": "ConfigMap"}[missing[1]]
        return Diagnosis(
            "missing-object",
            f"The {kind} {missing[2]!r} does not exist: {message}.",
            "Submit the job again: the object was removed, or the submit did not finish.",
        )
    return Diagnosis("container-config", f"The container cannot be configured: {message}.")


def _mounts(events: Sequence[Manifest]) -> Diagnosis | None:
    failures = [
        _message(event)
        for event in events
        if event.get("reason") in ("FailedMount", "FailedAttachVolume")
    ]
    if not failures:
        return None
    text = failures[-1]
    if missing := _MISSING.search(text):
        return _config(missing[0])
    remedy = ""
    if "not found in the list of registered CSI drivers" in text:
        remedy = (
            "Enable the Cloud Storage FUSE CSI driver of the cluster, or leave fuse=True out."
            if "gcsfuse" in text
            else "Install that driver in the cluster."
        )
    return Diagnosis("volume", f"A volume cannot be mounted: {text}", remedy)


def _not_created(events: Sequence[Manifest]) -> Diagnosis | None:
    failures = [_message(event) for event in events if event.get("reason") == "FailedCreate"]
    if not failures:
        return None
    text = failures[-1].removeprefix("Error creating: ")
    reason = f"The pod cannot be created: {text}"
    if account := re.search(r'serviceaccount "([^"]+)" not found', text):
        return Diagnosis(
            "service-account",
            reason,
            f"Create it: kubectl create serviceaccount {account[1]}. Or name another.",
        )
    if _QUOTA.search(text):
        return Diagnosis(
            "quota",
            reason,
            "Wait until other pods of the namespace end, or ask for a larger quota.",
        )
    if "violates PodSecurity" in text:
        return Diagnosis(
            "pod-security",
            reason,
            "The namespace's policy forbids such pods: use another namespace, or have the policy changed.",
        )
    return Diagnosis("pod-creation", reason)


def _suspended(job: Manifest, events: Sequence[Manifest]) -> Diagnosis:
    queue = job["metadata"].get("labels", {}).get(_QUEUE)
    stopped = [_message(event) for event in events if event.get("reason") == "Stopped"]
    if queue is None:
        return Diagnosis(
            "suspended",
            "It is suspended.",
            # A submit over a slow connection creates the Job suspended. If the submit was interrupted,
            # objects that the pod needs are missing, so resuming the Job would not help.
            "If its submit was interrupted, clean it up and submit it again. If it was suspended on purpose, "
            f"resume it: kubectl patch job {job['metadata']['name']}{_in_namespace(job)} "
            """-p '{"spec":{"suspend":false}}'""",
        )
    why = f" {stopped[-1].rstrip('.')}." if stopped else ""
    return Diagnosis("queued", f"The job waits in the queue {queue!r}.{why}")


def _in_namespace(job: Manifest) -> str:
    namespace = job["metadata"].get("namespace")
    return f" -n {namespace}" if namespace else ""


def _failed(job: Manifest, last: PodView | None) -> Diagnosis | None:
    failed = condition(job, "Failed")
    if failed.get("reason") == "DeadlineExceeded":
        return Diagnosis(
            "deadline", f"The job did not end in time: {failed.get('message') or 'no details'}."
        )
    if last is None:
        return Diagnosis(
            "pod-deleted",
            "The job's pod was deleted, by a person or a program: "
            f"{failed.get('message') or failed.get('reason') or 'no details'}.",
        )
    return _ended(last)


def _ended(pod: PodView) -> Diagnosis | None:
    """Return how a pod ended, unless it succeeded."""
    if pod.disruption:
        return Diagnosis("disrupted", f"The cluster ended the pod: {pod.disruption}")
    if pod.status.get("reason") == "Evicted":
        return Diagnosis(
            "evicted",
            f"The node evicted the pod: {pod.status.get('message') or 'no details'}",
            "Write less to the local disk: large files belong in a bucket.",
        )
    ended = pod.terminated
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        return _out_of_memory(pod)
    if not code:
        return None
    if ended.get("reason") in ("StartError", "ContainerCannotRun"):
        return _no_program(str(ended.get("message") or ""))
    signal = _SIGNALS.get(int(code) - 128)
    how = f"exit code {code}{f' ({signal})' if signal else ''}"
    text = _last_line(ended)
    return Diagnosis("exit", f"The container ended with {how}{f': {text}' if text else '.'}")


def _out_of_memory(pod: PodView) -> Diagnosis:
    container = (pod.manifest.get("spec") or {})["containers"][0]
    limit = container.get("resources", {}).get("limits", {}).get("memory")
    if limit is None:
        return Diagnosis(
            "out-of-memory",
            "A process was killed because the node ran out of memory.",
            "Request what the job needs: memory=",
        )
    return Diagnosis(
        "out-of-memory",
        f"A process was killed: the container used more than its limit of {limit} of memory.",
        f"Use less memory, or set memory= above {limit}.",
    )


def _no_program(message: str) -> Diagnosis:
    if found := _EXECUTABLE.search(message):
        return Diagnosis(
            "no-program",
            f"The image has no program {found[1]!r}: {message}",
            f"Use an image that has {found[1]} on its PATH.",
        )
    return Diagnosis("start", f"The container could not start: {message}")


def _events_about(uid: str, events: Iterable[Manifest]) -> list[Manifest]:
    """Return the events about the object with this *uid*, the oldest first."""
    found = [event for event in events if (event.get("involvedObject") or {}).get("uid") == uid]
    return sorted(found, key=_event_time)


_EVENT_TIMES: Final[tuple[Callable[[Manifest], Any], ...]] = (
    # Events of the scheduler have no count and no lastTimestamp.
    lambda event: (event.get("series") or {}).get("lastObservedTime"),
    lambda event: event.get("lastTimestamp"),
    lambda event: event.get("eventTime"),
    lambda event: event["metadata"].get("creationTimestamp"),
)


def _event_time(event: Manifest) -> str:
    return next((str(found) for read in _EVENT_TIMES if (found := read(event))), "")


def _message(event: Manifest) -> str:
    return str(event.get("message") or "").strip()


def _last_line(terminated: Mapping[str, Any]) -> str:
    lines = str(terminated.get("message") or "").strip().splitlines()
    return lines[-1] if lines else ""
