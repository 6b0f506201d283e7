"""Kueue: why a job waits in its queue, at which position, and which workloads hold the quota."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import condition, is_true
from kinetic_k8s.reading.causes import Diagnosis

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""The label that names the LocalQueue of a job."""
_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
_SHORT: Final = re.compile(r"insufficient (?:unused )?quota for (\S+) in flavor")
_TOO_SMALL: Final = re.compile(r"insufficient quota for \S+ in flavor ([^\s,;]+)")
_SHORT_NOW: Final = re.compile(r"insufficient unused quota for \S+ in flavor ([^\s,;]+)")
_NAMED: Final = 3
"""How many holders of quota a message names."""


@dataclass(frozen=True)
class Holder:
    """A workload that holds quota of the queue."""

    name: str
    """The name of its Job or JobSet; with the namespace before it if that is another one than the job's."""
    priority: int
    usage: Mapping[str, str]
    """What it holds of each resource."""


@dataclass(frozen=True)
class QueuePlace:
    """The place of a job in its queue."""

    queue: str
    """The name of the LocalQueue."""
    reason: str = ""
    """Kueue's words; empty as long as it has not considered the job."""
    eviction: str = ""
    """Why Kueue took the quota away that the job had before."""
    active: bool = True
    """False: the job's Workload was deactivated, and waits for a person to activate it."""
    admitted: bool = False
    """Whether it has its quota, so that its pods are created."""
    position: int | None = None
    """1: the next one. None: it is not known which queues lead to the same ClusterQueue."""
    waiting: int = 0
    """How many workloads are known to wait for the same ClusterQueue, this one included."""
    complete: bool = False
    """Whether all that wait are known. Otherwise there are more, of namespaces that may not be read."""
    holders: tuple[Holder, ...] = ()
    """Workloads that hold quota, those with the lowest priority and then the latest ones first."""


def is_queued(job: Manifest) -> bool:
    """Return whether the job names a queue. Only clusters with Kueue take notice of it."""
    return QUEUE in (job["metadata"].get("labels") or {})


def place_of(
    job: Manifest,
    workloads: Sequence[Manifest],
    *,
    local_queues: Sequence[Manifest] = (),
    complete: bool = False,
) -> QueuePlace | None:
    """Return the place of a job in its queue; None if it has no Workload among *workloads*.

    Args:
        job: The Job, JobSet or LeaderWorkerSet.
        workloads: Workloads of Kueue (v1beta1 or v1beta2): of the job's namespace, or of all that may be read.
        local_queues: LocalQueues of the same namespaces. Without the job's own, there is no position.
        complete: Whether the objects are those of all namespaces, so that nobody else waits.
    """
    own = _workload_of(job, workloads)
    if own is None:
        return None
    name = str(own["spec"].get("queueName") or "")
    leads_to = {
        (each["metadata"].get("namespace"), each["metadata"]["name"]): each["spec"]["clusterQueue"]
        for each in local_queues
    }
    namespace = own["metadata"].get("namespace")
    cluster_queue = leads_to.get((namespace, name)) or _admitted_by(own)
    evicted = condition(own, "Evicted")
    place = QueuePlace(
        name,
        str(condition(own, "QuotaReserved").get("message") or "")
        if not is_true(own, "QuotaReserved")
        else "",
        eviction=str(evicted.get("message") or "") if evicted.get("status") == "True" else "",
        active=own["spec"].get("active") is not False,
        admitted=is_true(own, "Admitted"),
    )
    if cluster_queue is None or place.admitted:
        return place
    line = sorted(
        (
            each
            for each in workloads
            if _is_waiting(each) and leads_to.get(_queue_key(each)) == cluster_queue
        ),
        key=_order,
    )
    uids = [each["metadata"].get("uid") for each in line]
    uid = own["metadata"].get("uid")
    return QueuePlace(
        name,
        place.reason,
        eviction=place.eviction,
        active=place.active,
        position=uids.index(uid) + 1 if uid in uids else None,
        waiting=len(line),
        complete=complete,
        holders=tuple(
            _holder(each, namespace)
            for each in sorted(workloads, key=_order, reverse=True)
            if _admitted_by(each) == cluster_queue and not is_true(each, "Finished")
        ),
    )


def queued(place: QueuePlace) -> Diagnosis | None:
    """Return why a job waits in its queue; None if it has its quota."""
    if place.admitted:
        return None
    if not place.active:
        return Diagnosis(
            "queue-deactivated",
            f"The job's Workload in the queue {place.queue!r} was deactivated: "
            f"{place.eviction or place.reason or 'no details'}",
            "Set spec.active of the Workload to true, or submit the job again.",
        )
    where = f"The job waits in the queue {place.queue!r}"
    evicted = f" It had been admitted before: {place.eviction}." if place.eviction else ""
    for pattern, cause, remedy in _REASONS:
        if cause == "queue-too-small" and _may_fit_later(place.reason):
            continue
        if found := re.search(pattern, place.reason):
            return Diagnosis(
                cause, f"{where}: {place.reason}.{evicted}", remedy.format(*found.groups())
            )
    why = f": {place.reason}" if place.reason else ""
    return Diagnosis(
        "queued", f"{where}{_position(place)}{why}.{evicted}{_held_by(place)}", _remedy(place)
    )


_REASONS: Final = (
    (
        r"LocalQueue (\S+) doesn't exist",
        "queue-missing",
        f"Name a LocalQueue of the job's namespace in the label {QUEUE}.",
    ),
    (
        r"ClusterQueue \S+ (?:doesn't exist|is inactive)|LocalQueue \S+ is inactive",
        "queue-inactive",
        "The queue admits no jobs at present: ask its administrator, or use another queue.",
    ),
    (
        r"resource (\S+) unavailable in ClusterQueue",
        "queue-without-resource",
        "The queue has no quota for {0}, so the job cannot start: use another queue, or have {0} added.",
    ),
    (
        r"insufficient quota for (\S+) in flavor",
        "queue-too-small",
        "The job requests more of {0} than the queue ever has for it: request less, or use another queue.",
    ),
)
"""Kueue's words about a job that waiting does not help → cause, remedy. Seen with Kueue 0.19."""


def _may_fit_later(reason: str) -> bool:
    """Return whether a flavor of the queue is only short of quota at present; *reason* lists all of them."""
    never = set(_TOO_SMALL.findall(reason))
    return any(flavor not in never for flavor in _SHORT_NOW.findall(reason))


def _position(place: QueuePlace) -> str:
    if place.position is None:
        return ""
    if place.complete:
        return f", at position {place.position} of {place.waiting}"
    return f", at position {place.position} or later"


def _held_by(place: QueuePlace) -> str:
    if not place.holders:
        return ""
    short = _SHORT.findall(place.reason)
    names = [
        f"{holder.name} ({used})" if (used := _usage(holder, short)) else holder.name
        for holder in place.holders[:_NAMED]
    ]
    more = len(place.holders) - len(names)
    if more:
        names.append(f"{more} more")
    return f" The quota is held by {', '.join(names)}."


def _usage(holder: Holder, resources: Sequence[str]) -> str:
    return ", ".join(
        f"{name} {amount}"
        for name, amount in holder.usage.items()
        if name in resources or not resources
    )


def _remedy(place: QueuePlace) -> str:
    if place.position is None and not place.reason:
        return ""
    return (
        "Wait until other jobs end, or submit it with a higher priority class or to another queue."
    )


def _workload_of(job: Manifest, workloads: Iterable[Manifest]) -> Manifest | None:
    """Return the newest Workload of *job*, which Kueue replaces when the job's pods change."""
    uid = job["metadata"].get("uid")
    found = [
        each
        for each in workloads
        if (each["metadata"].get("labels") or {}).get(_JOB_UID) == uid
        or any(owner.get("uid") == uid for owner in each["metadata"].get("ownerReferences") or ())
    ]
    return max(found, key=_created, default=None)


def _is_waiting(workload: Manifest) -> bool:
    return (
        not is_true(workload, "QuotaReserved")
        and not is_true(workload, "Finished")
        and workload["spec"].get("active") is not False
    )


def _order(workload: Manifest) -> tuple[int, str, str]:
    """Return the order in which Kueue considers workloads: by priority, then by time, then by uid.

    One that was evicted because its pods were not ready, or by an admission check, goes to the end; one that
    was preempted keeps its place.
    """
    evicted = condition(workload, "Evicted")
    since = _created(workload)
    if evicted.get("status") == "True" and evicted.get("reason") in (
        "PodsReadyTimeout",
        "AdmissionCheck",
    ):
        since = str(evicted.get("lastTransitionTime") or since)
    return (
        -int(workload["spec"].get("priority") or 0),
        since,
        str(workload["metadata"].get("uid", "")),
    )


def _queue_key(workload: Manifest) -> tuple[Any, Any]:
    return workload["metadata"].get("namespace"), workload["spec"].get("queueName")


def _admission(workload: Manifest) -> Mapping[str, Any]:
    return (workload.get("status") or {}).get("admission") or {}


def _admitted_by(workload: Manifest) -> str | None:
    return _admission(workload).get("clusterQueue")


def _holder(workload: Manifest, namespace: str | None) -> Holder:
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or [metadata]
    name = str(owners[0]["name"])
    if metadata.get("namespace") != namespace:
        name = f"{metadata.get('namespace')}/{name}"
    usage: dict[str, str] = {}
    for pods in _admission(workload).get("podSetAssignments") or ():
        for resource, amount in (pods.get("resourceUsage") or {}).items():
            usage[resource] = f"{usage[resource]} + {amount}" if resource in usage else str(amount)
    return Holder(name, int(workload["spec"].get("priority") or 0), usage)


def _created(workload: Manifest) -> str:
    return str(workload["metadata"].get("creationTimestamp") or "")
