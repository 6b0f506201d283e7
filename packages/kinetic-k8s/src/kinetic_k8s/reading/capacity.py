"""Why no node was found for a pod: the words of the scheduler, followed by those of the autoscaler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.causes import Diagnosis
from kinetic_k8s.reading.events import message_of

_CLAIM: Final = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_TAINT: Final = re.compile(r"untolerated taint(?:\(s\))?(?: \{([^\s:}]+))?")
"""The key of a taint, which some versions leave out."""
_ACCELERATOR_TAINTS: Final = ("nvidia.com/gpu", "google.com/tpu")
"""Taints of GKE's nodes with accelerators. A job tolerates that of its own kind of node."""
_STARTING_TAINTS: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
    "node.cloudprovider.kubernetes.io/uninitialized",
)
"""Taints of a node that starts, or whose kubelet has trouble."""
_GROWS, _CANNOT, _FAILED = "TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp"
_ZONES: Final = re.compile(r"in zones (.+?) associated with this pod")

_SCALE_UP_FAILURES: Final = (
    # What GKE's autoscaler writes into FailedScaleUp, or the Compute API's own code → cause, remedy.
    # The texts are those of events/failed_scale_up in GKE's autoscaler.
    (
        r"quota exceeded|QUOTA_EXCEEDED",
        "cloud-quota",
        "Ask for a larger quota of the project{zones}, or choose another region or accelerator.",
    ),
    (
        r"out of resources|RESOURCE_POOL_EXHAUSTED|stockout|does not have enough resources",
        "stock-out",
        "Google has no such machine free{zones} at present. The autoscaler keeps trying: wait, or use "
        "a reservation, another zone or another accelerator.",
    ),
    (
        r"IP space exhausted|IP_SPACE_EXHAUSTED",
        "ip-space",
        "The cluster's network has no free addresses: have its address ranges extended.",
    ),
    (
        r"Service Account was deleted",
        "node-service-account",
        "The service account of the cluster's nodes was deleted: have it restored.",
    ),
    (
        r"[Rr]eservation",
        "reservation",
        "Check the reservation that the node pool names: its zone, its machine type and what is free in it.",
    ),
    (
        r"Invalid TPU|Compact Placement",
        "node-pool",
        "The node pool does not fit its TPU topology: create it again for this slice.",
    ),
)


def unscheduled(
    pod: PodView, scheduled: Mapping[str, Any], events: Sequence[Manifest]
) -> Diagnosis:
    """Return why no node was found for *pod*.

    Args:
        pod: The pod.
        scheduled: Its condition `PodScheduled`, which is false.
        events: Events about the pod, the oldest first.
    """
    found = _by_scheduler(pod, scheduled)
    last = {event["reason"]: message_of(event) for event in events if event.get("reason")}
    latest = next(
        (event["reason"] for event in reversed(events) if event.get("reason") in _AUTOSCALER), None
    )
    if latest is None or found.cause in ("gated", "volume"):
        return found
    reason = f"{found.reason} The autoscaler reports: {last[latest]}"
    if latest == _CANNOT and "backoff after failed scale-up" in last[latest] and _FAILED in last:
        latest, reason = _FAILED, f"{reason} {last[_FAILED]}"
    if latest == _GROWS:
        return Diagnosis(
            "scaling-up",
            reason,
            "Wait: a new node takes minutes, and a TPU slice may take longer.",
        )
    if latest == _CANNOT:
        return _cannot_grow(found, reason, last[latest])
    return _growth_failed(reason, last[latest])


_AUTOSCALER: Final = (_GROWS, _CANNOT, _FAILED)


def _cannot_grow(found: Diagnosis, reason: str, text: str) -> Diagnosis:
    if re.search(r"max (?:node group size|cluster .* limit) reached", text):
        return Diagnosis(
            "pool-full",
            reason,
            "Wait until other jobs end, or raise the maximum size of the node pool.",
        )
    if "backoff after failed scale-up" in text:
        return Diagnosis(
            "scale-up-failed",
            reason,
            "The autoscaler tries again after some minutes. The events of earlier pods tell why it failed.",
        )
    return Diagnosis(found.cause, reason, found.remedy)


def _growth_failed(reason: str, text: str) -> Diagnosis:
    zones = _ZONES.search(text)
    for pattern, cause, remedy in _SCALE_UP_FAILURES:
        if re.search(pattern, text):
            return Diagnosis(cause, reason, remedy.format(zones=f" in {zones[1]}" if zones else ""))
    return Diagnosis("scale-up-failed", reason)


def _by_scheduler(pod: PodView, scheduled: Mapping[str, Any]) -> Diagnosis:
    text = str(scheduled.get("message") or "no reason given")
    if scheduled.get("reason") == "SchedulingGated":
        return Diagnosis("gated", f"The pod is held back by the cluster: {text}")
    # After that, the scheduler describes why preempting other pods would not help either.
    causes = text.partition("preemption:")[0]
    if claim := _CLAIM.search(causes):
        return Diagnosis(
            "volume",
            f"The PersistentVolumeClaim {claim[1]!r} does not exist: {text}",
            "Create it, or correct its name in pod_overrides.",
        )
    if "unbound immediate PersistentVolumeClaims" in causes:
        return Diagnosis("volume", f"A disk of the pod has not been provisioned: {text}")
    requests = pod.container_spec.get("resources", {}).get("requests", {})
    # The scheduler lists all causes with the number of their nodes. A node that only lacks room fits otherwise.
    for resource in re.findall(r"Insufficient ([\w./-]+\w)", causes):
        remedy = "Wait until other jobs end, or add nodes."
        if resource in requests:
            remedy = (
                f"The pod requests {requests[resource]} of {resource}: wait until other jobs end, "
                "request less, or add nodes."
            )
        return Diagnosis("insufficient", f"No node has room for the pod: {text}", remedy)
    if re.search(r"anti-affinity rules|Too many pods", causes):
        return Diagnosis(
            "occupied",
            f"Every node of the kind that the job requests is occupied: {text}",
            "Wait until other jobs end, or add a node pool of the same kind: a slice runs one job at a time.",
        )
    return _rejected(pod, text, causes)


def _rejected(pod: PodView, text: str, causes: str) -> Diagnosis:
    """Return why no node accepts the pod.

    The scheduler names the first filter that each node fails: that it is cordoned or tainted before that it
    is of another kind. So a node that is cordoned or tainted may be of the kind that the job requests.
    """
    others = "node affinity/selector" in causes
    taints = _TAINT.findall(causes)
    if others:
        taints = [key for key in taints if key not in _ACCELERATOR_TAINTS]
    cordoned = "node(s) were unschedulable" in causes
    starting = bool(taints) and all(key in _STARTING_TAINTS for key in taints)
    wanted = ",".join(
        f"{key}={value}" for key, value in (pod.spec.get("nodeSelector") or {}).items()
    )
    if others and not taints and not cordoned:
        remedy = ""
        if wanted:
            remedy = (
                "Add a node pool (gcloud container node-pools create) whose nodes have the labels "
                f"{wanted.replace(',', ', ')}, or choose another accelerator."
            )
        return Diagnosis("no-node", f"No node is of the kind that the job requests: {text}", remedy)
    states = []
    if taints and not starting:
        cause, remedy = "taint", "Add nodes without that taint."
        states.append("have a taint that the pod does not tolerate")
    if cordoned:
        cause = "cordoned"
        remedy = "Wait: they are being drained or upgraded, or an administrator has cordoned them."
        states.append("accept no new pods at present")
    elif starting:
        cause, remedy = "node-starting", "Wait: a new node takes minutes to be ready."
        states.append("are not ready yet")
    if not states:
        return Diagnosis("unschedulable", f"No node accepts the pod: {text}")
    if others:
        states.insert(0, "are not of the kind that the job requests")
        remedy = (
            f"See which nodes are of that kind: kubectl get nodes -l {wanted}. If there are none, add a node pool."
            if wanted
            else ""
        )
    which = "The nodes" if len(states) == 1 else "Some nodes"
    return Diagnosis(cause, f"{which} {', and others '.join(states)}: {text}", remedy)
