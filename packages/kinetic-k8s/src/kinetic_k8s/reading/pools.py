"""What GKE reports of a pool: which of its machines it tries to get, has given up for a while, or has.

The conditions are those of GKE's autoscaler, as its source of 2026 writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.compute_class import COMPUTE_CLASS, Pool, parse_priority, pool_of
from kinetic_k8s.manifests.labels import JOB_ID, NODE_POOL
from kinetic_k8s.manifests.placement import ACCELERATOR_SELECTORS, SPOT, placement_of
from kinetic_k8s.reading.attempts import PodView
from kinetic_k8s.reading.preflight import NodePool, class_command
from kinetic_k8s.reading.workloads import WorkloadView

State = Literal["ready", "provisioning", "constrained", "suspended", "misconfigured"]
_STATES: Final[Mapping[str, State]] = {
    "RuleMisconfigured": "misconfigured",
    "ProvisioningSuspended": "suspended",
    "ProvisioningConstrained": "constrained",
    "NodeProvisioningInProgress": "provisioning",
}
"""Condition → state, the worst first."""
_UNTIL: Final = re.compile(r"\buntil ([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [A-Z]+)")
_MISCONFIGURED: Final = "CrdMisconfigured"


@dataclass(frozen=True, kw_only=True)
class PriorityStatus:
    """What GKE reports of one priority of a pool."""

    text: str
    """The priority, as in `v6e-8:spot`."""
    state: State = "ready"
    """`suspended`: it could not be had, and is not tried for a while; `constrained`: not in some of the zones;
    `misconfigured`: there are no such machines."""
    reason: str = ""
    """In one word of GKE, such as `OutOfResources` or `QuotaExceeded`."""
    until: str = ""
    """When GKE tries it again, such as `2026-11-27 12:00:00 UTC`; empty: it does not say."""
    since: str = ""
    """When this state began."""
    message: str = ""

    def __str__(self) -> str:
        if self.state == "ready":
            return self.text
        if self.state == "provisioning":
            return f"{self.text} (GKE makes machines)"
        if self.state == "misconfigured":
            return f"{self.text} (refused: {self.reason}. {self.message})"
        what = "in cool-down" if self.state == "suspended" else "partly in cool-down"
        until = f" until {self.until}" if self.until else ""
        return f"{self.text} ({what}{until}: {self.reason})"


@dataclass(frozen=True, kw_only=True)
class PoolStatus:
    """A pool, and what its cluster reports of it."""

    pool: Pool
    priorities: tuple[PriorityStatus, ...]
    problem: str = ""
    """Why GKE cannot use the class at all; empty if it can."""
    nodes: int | None = None
    """The machines that it has; None: the user may not look."""
    used_by: tuple[str, ...] = ()
    """The ids of the jobs that run or wait there; of a node pool, those that select its machines."""
    is_class: bool = True
    """Whether it is a ComputeClass; otherwise it is a node pool that Kinetic made."""
    max_nodes: int | None = None
    """The most machines of a node pool; a class has no limit."""


def pool_status(
    manifest: Manifest, nodes: Sequence[Manifest] | None = None, workloads: Iterable[Manifest] = ()
) -> PoolStatus | None:
    """Return the status of the pool that a ComputeClass is; None if Kinetic did not make it.

    *nodes* are those of all classes, *workloads* those of all jobs.
    """
    pool = pool_of(manifest)
    if pool is None:
        return None
    status = manifest.get("status") or {}
    wrong = _true(status.get("conditions")).get(_MISCONFIGURED, {})
    found = {
        str(each.get("identifier")): _true(each.get("conditions"))
        for each in status.get("priorityStatuses") or ()
    }
    return PoolStatus(
        pool=pool,
        priorities=tuple(
            _priority(str(priority), found.get(str(number), {}))
            for number, priority in enumerate(pool.priorities)
        ),
        problem=". ".join(filter(None, (wrong.get("reason"), wrong.get("message")))),
        nodes=_count(nodes, COMPUTE_CLASS, pool.name),
        used_by=_used_by(workloads, lambda selector: selector.get(COMPUTE_CLASS) == pool.name),
    )


def node_pool_status(
    found: NodePool, nodes: Sequence[Manifest] | None = None, workloads: Iterable[Manifest] = ()
) -> PoolStatus:
    """Return the status of a node pool that Kinetic made; *nodes* are those of all node pools."""
    priority = parse_priority(found.made_for)
    labels = {*ACCELERATOR_SELECTORS, SPOT}
    own = placement_of(priority.accelerator).selector

    def selects(selector: Mapping[str, str]) -> bool:
        if COMPUTE_CLASS in selector or selector.get(NODE_POOL, found.name) != found.name:
            return False
        return all(selector.get(key) == own.get(key) for key in labels)

    return PoolStatus(
        pool=Pool(name=found.name, priorities=(priority,), min_nodes=found.min_nodes),
        priorities=(PriorityStatus(text=str(priority)),),
        problem=found.problem,
        nodes=_count(nodes, NODE_POOL, found.name),
        used_by=_used_by(workloads, selects),
        is_class=False,
        max_nodes=found.max_nodes,
    )


def idle_command(status: PoolStatus) -> str:
    """Return the command that keeps no machines of a pool any more."""
    name, accelerator = status.pool.name, status.pool.accelerator
    if not status.is_class and accelerator.multi_host:
        name = name.rpartition("-")[0]  # Of the node pools of all slices.
    node_pool = " --node-pool" * (not status.is_class)
    return f"kinetic pool add{node_pool} --accelerator {accelerator} --name {name} --min-nodes 0"


def _count(nodes: Sequence[Manifest] | None, label: str, name: str) -> int | None:
    if nodes is None:
        return None
    labels = [each["metadata"].get("labels") or {} for each in nodes]
    return [each.get(label) for each in labels].count(name)


def _used_by(
    workloads: Iterable[Manifest], selects: Callable[[Mapping[str, str]], bool]
) -> tuple[str, ...]:
    """Return the ids of the jobs of which a pod has a node selector that *selects* the pool."""
    jobs = {
        each.labels.get(JOB_ID, "")
        for each in map(WorkloadView, workloads)
        if not each.has_ended and any(map(selects, _selectors(each.manifest["spec"])))
    }
    return tuple(sorted(jobs - {""}))


def _true(conditions: Iterable[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {each["type"]: each for each in conditions or () if each.get("status") == "True"}


def _priority(text: str, conditions: Mapping[str, Mapping[str, Any]]) -> PriorityStatus:
    for kind, state in _STATES.items():
        if (found := conditions.get(kind)) is not None:
            message = str(found.get("message") or "")
            until = _UNTIL.search(message)
            return PriorityStatus(
                text=text,
                state=state,
                reason=str(found.get("reason") or ""),
                until=until[1] if until else "",
                since=str(found.get("lastTransitionTime") or ""),
                message=message,
            )
    return PriorityStatus(text=text)


def _selectors(part: Any) -> Iterator[Mapping[str, str]]:
    """Iterate over the node selectors of the pods of a workload."""
    if isinstance(part, Mapping):
        yield from filter(None, [part.get("nodeSelector")])
    for each in part.values() if isinstance(part, Mapping) else part:
        if isinstance(each, Mapping | list):
            yield from _selectors(each)


def class_of_pod(pod: PodView) -> str:
    """Return the name of the pool that Kinetic has chosen for *pod*; empty if it has not.

    A class that the user selects may be one of GKE's own, which are no objects.
    """
    name = (pod.spec.get("nodeSelector") or {}).get(COMPUTE_CLASS, "")
    chosen = {"key": COMPUTE_CLASS, "operator": "Equal", "value": name, "effect": "NoSchedule"}
    return str(name) if chosen in (pod.spec.get("tolerations") or ()) else ""


def waits_for(name: str, manifest: Manifest | None) -> tuple[str, str]:
    """Return what a pod without a node waits for, and what would help, if its pool tells; else empty texts.

    *manifest* is the ComputeClass *name*, None if it does not exist.
    """
    if manifest is None:
        return (
            f"The pool {name!r} does not exist any more.",
            "Add it again, `kinetic pool add` does that, or cancel the job.",
        )
    found = pool_status(manifest)
    return ("", "") if found is None else what_helps(found)


def what_helps(found: PoolStatus) -> tuple[str, str]:
    """Return why a pool has no machines for a while, and what would help; empty texts: nothing is known."""
    name = found.pool.name
    refused = all(each.state == "misconfigured" for each in found.priorities)
    if found.problem or refused:
        why = found.problem or ", ".join(map(str, found.priorities))
        return (
            f"GKE cannot use the pool {name!r}: {why}",
            "Correct it with `kinetic pool add`, or remove it with `kinetic pool remove`.",
        )
    if all(each.state == "ready" for each in found.priorities):
        return "", ""
    reason = f"Its pool {name!r}: {', '.join(map(str, found.priorities))}."
    if any(each.state not in ("suspended", "misconfigured") for each in found.priorities):
        return reason, ""
    others = [*map(str, found.pool.priorities[1:]), "ACCELERATOR"]
    given = " ".join(f"--fallback {other}" for other in others)
    return reason, (
        "GKE tries again by itself. To let other machines stand in: "
        f"{class_command(found.pool.accelerator)} --name {name} {given}"
    )
