"""Kueue: why a job waits in its queue, at which position, and which workloads hold the quota."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.attempts import condition, is_true
from kinetic_k8s.reading.causes import IN_QUEUE, QUEUE, Diagnosis, explained

_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
_SHORT: Final = re.compile(r"insufficient (?:unused )?quota for (\S+) in flavor")
_TOO_SMALL: Final = re.compile(r"insufficient quota for \S+ in flavor ([^\s,;]+)")
_SHORT_NOW: Final = re.compile(r"insufficient unused quota for \S+ in flavor ([^\s,;]+)")
_NAMED: Final = 3
"""How many holders of quota a message names."""


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
    holders: tuple[str, ...] = ()
    """Jobs that hold the quota, with what they hold: those with the lowest priority and then the latest ones
    first. The name of another namespace than the job's precedes the job's name."""


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
        workloads: Workloads of Kueue: of the job's namespace, or of all that may be read.
        local_queues: LocalQueues of the same namespaces. Without the job's own, there is no position.
        complete: Whether the objects are those of all namespaces, so that nobody else waits.
    """
    job_uid = job["metadata"].get("uid")
    found = [
        each
        for each in workloads
        if (each["metadata"].get("labels") or {}).get(_JOB_UID) == job_uid
        or any(one.get("uid") == job_uid for one in each["metadata"].get("ownerReferences") or ())
    ]
    if not found:
        return None
    own = max(found, key=_created)  # Kueue replaces it when the job's pods change.
    name = str(own["spec"].get("queueName") or "")
    leads_to = {
        (each["metadata"].get("namespace"), each["metadata"]["name"]): each["spec"]["clusterQueue"]
        for each in local_queues
    }
    namespace = own["metadata"].get("namespace")
    cluster_queue = leads_to.get((namespace, name)) or _admission(own).get("clusterQueue")
    evicted, reserved = condition(own, "Evicted"), condition(own, "QuotaReserved")
    waits = reserved.get("status") != "True"
    place = QueuePlace(
        name,
        str(reserved.get("message") or "") if waits else "",
        eviction=str(evicted.get("message") or "") if evicted.get("status") == "True" else "",
        active=own["spec"].get("active") is not False,
        admitted=is_true(own, "Admitted"),
    )
    if cluster_queue is None or place.admitted:
        return place
    in_line = [
        each["metadata"].get("uid")
        for each in sorted(workloads, key=_order)
        if not is_true(each, "QuotaReserved")
        and not is_true(each, "Finished")
        and each["spec"].get("active") is not False
        and leads_to.get((each["metadata"].get("namespace"), each["spec"].get("queueName")))
        == cluster_queue
    ]
    uid = own["metadata"].get("uid")
    short = _SHORT.findall(place.reason)
    return replace(
        place,
        position=in_line.index(uid) + 1 if uid in in_line else None,
        waiting=len(in_line),
        complete=complete,
        holders=tuple(
            _holder(each, namespace, short)
            for each in sorted(workloads, key=_order, reverse=True)
            if _admission(each).get("clusterQueue") == cluster_queue
            and not is_true(each, "Finished")
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
    # Kueue lists all flavors of the queue; one may only be short of quota at present.
    too_small = set(_TOO_SMALL.findall(place.reason))
    may_fit = not too_small.issuperset(_SHORT_NOW.findall(place.reason))
    never = explained(f"{where}: {place.reason}.{evicted}", place.reason, IN_QUEUE)
    if never is not None and not (may_fit and never.cause == "queue-too-small"):
        return never
    position = ""
    if place.position is not None:
        position = f", at position {place.position}"
        position += f" of {place.waiting}" if place.complete else " or later"
    why = f": {place.reason}" if place.reason else ""
    holders = list(place.holders[:_NAMED])
    if more := len(place.holders) - len(holders):
        holders.append(f"{more} more")
    held = f" The quota is held by {', '.join(holders)}." if holders else ""
    remedy = (
        "Wait until other jobs end, or submit it with a higher priority class or to another queue."
    )
    return Diagnosis(
        "queued",
        f"{where}{position}{why}.{evicted}{held}",
        remedy if place.position is not None or place.reason else "",
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


def _admission(workload: Manifest) -> Mapping[str, Any]:
    return (workload.get("status") or {}).get("admission") or {}


def _holder(workload: Manifest, namespace: str | None, short: Sequence[str]) -> str:
    """Return who holds quota, and how much of the resources *short*, or of all if none are."""
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or [metadata]
    name = str(owners[0]["name"])
    if metadata.get("namespace") != namespace:
        name = f"{metadata.get('namespace')}/{name}"
    usage: dict[str, str] = {}
    for pods in _admission(workload).get("podSetAssignments") or ():
        for resource, amount in (pods.get("resourceUsage") or {}).items():
            usage[resource] = f"{usage[resource]} + {amount}" if resource in usage else str(amount)
    held = ", ".join(
        f"{resource} {amount}"
        for resource, amount in usage.items()
        if resource in short or not short
    )
    return f"{name} ({held})" if held else name


def _created(workload: Manifest) -> str:
    return str(workload["metadata"].get("creationTimestamp") or "")
