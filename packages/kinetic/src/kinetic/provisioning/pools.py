"""Pools of a cluster: add one, list them, remove one. A pool is a ComputeClass, from which GKE makes machines.

Node pools that Kinetic made are listed and removed here, too; `node_pools` adds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError
from kinetic.provisioning.desired import ClusterPlace
from kinetic.provisioning.quotas import warn_of_quotas
from kinetic.user_warnings import warn_caller
from kinetic_k8s.accelerators.types import describe
from kinetic_k8s.errors import ConflictError, NotPermittedError, UnknownAcceleratorError
from kinetic_k8s.manifests.compute_class import (
    COMPUTE_CLASS,
    KIND,
    Pool,
    Priority,
    check_pool,
    class_of,
    parse_priority,
    pool_for,
    pool_name,
    pool_of,
)
from kinetic_k8s.manifests.labels import NODE_POOL, of_jobs
from kinetic_k8s.reading.pools import PoolStatus, node_pool_status, pool_status
from kinetic_k8s.reading.preflight import needs_policy, pool_command
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.gke import GkeCluster
    from kinetic_k8s.manifests import Manifest


@dataclass(frozen=True, kw_only=True)
class PoolOptions:
    """What the machines of a pool are; what is None stays as it is, or is the default of a new pool."""

    flex_start: bool | None = None
    """Wait in Google's queue for machines, which are lent for at most a week. With False, buy them at once."""
    reservation: str | None = None
    """Use a reservation: `NAME`, or `PROJECT/NAME`. If only one of these two is given, the other one ends."""
    fallback: Sequence[str] | None = None
    """What stands in if the first machines are not to be had, in this order: `v5e-8`, `v6e-8:spot`,
    `v6e-8:flex-start`, `v6e-8:reservation=NAME`."""
    min_nodes: int | None = None
    """How many machines are kept, and billed, even if no job needs them."""
    max_nodes: int | None = None
    """The most machines of a node pool. A ComputeClass has no such limit."""
    slices: int | None = None
    """The most slices of node pools; for a ComputeClass, GKE makes as many as jobs ask for."""


@dataclass(frozen=True)
class AddedPool:
    """A pool, and what `add_pool` did."""

    pool: Pool
    before: Pool | None
    """The pool as it was; None: it is new."""
    manifest: Manifest
    """The ComputeClass."""


def add_pool(
    settings: Settings,
    accelerator: str,
    options: PoolOptions = PoolOptions(),
    *,
    name: str | None = None,
    dry_run: bool = False,
) -> AddedPool:
    """Let the cluster of *settings* make machines for jobs on *accelerator*, or change the pool that does.

    Nothing is billed until a job asks for machines, except for `min_nodes`. A quota that is too low is a warning.

    Args:
        settings: They name the cluster.
        accelerator: Such as `v6e-8`, or `v6e-8:spot` for spot machines.
        options: What else the pool is.
        name: The name of the pool; by default it follows from the accelerator.
        dry_run: Let the cluster check the change, and make none.

    Raises:
        InvalidRequestError: The pool is not valid, the accelerator has another pool, the name is taken, or the cluster
            serves no ComputeClasses.
        ClusterError: The cluster cannot be reached, or refuses it.
    """
    draft = new_pool(accelerator, name=name)
    if options.max_nodes is not None or options.slices is not None:
        raise InvalidRequestError(
            "A ComputeClass has no limit of machines: GKE makes as many slices as jobs ask for, and the quota allows.",
            hint="Leave --max-nodes and --slices out, or add a node pool, which has one: --node-pool",
        )
    check(changed(draft, options))  # Before anything is asked of the cluster.
    cluster, gke, classes = _pools_of(settings)
    if classes is None:
        raise InvalidRequestError(
            f"{cluster.identity} serves no ComputeClasses, which pools are.",
            hint="They exist on GKE from 1.30.3, and there make node pools by themselves from 1.33.3. Elsewhere, add "
            f"a node pool: kinetic pool add --node-pool --accelerator {draft.accelerator}",
        )
    found = cluster.get(KIND, draft.name)
    before = None if found is None else pool_of(found)
    if found is not None and (before is None or before.accelerator != draft.accelerator):
        raise InvalidRequestError(
            f"{cluster.identity} has a ComputeClass {draft.name!r} "
            f"{'that Kinetic did not make' if before is None else f'for {before.accelerator}'}.",
            hint="Choose another name with --name.",
        )
    other = pool_for(draft.accelerator, classes)
    if other is not None and other.accelerator == draft.accelerator and other.name != draft.name:
        raise InvalidRequestError(
            f"Jobs on {draft.accelerator} run in the pool {other.name!r} of {cluster.identity}.",
            hint=f"Change that one with --name {other.name}, or remove it first.",
        )
    pool = changed(before or draft, options)
    check(pool)
    if gke is not None:
        place = ClusterPlace(project=gke.project, location=gke.location, cluster=gke.name)
        warn_of_quotas(place, pool.priorities)
    if found is None or before is None:
        return AddedPool(pool, None, cluster.create(class_of(pool), dry_run=dry_run))
    manifest = _edited(found, before, pool)
    written = cluster.patch(KIND, pool.name, manifest, merge="plain", dry_run=dry_run)
    if written is None:
        raise ConflictError(
            f"The pool {pool.name!r} was removed at this moment.", hint="Add it again."
        )
    return AddedPool(pool, before, written)


def _edited(found: Manifest, before: Pool, pool: Pool) -> Manifest:
    """Return the class *found*, which is *before*, as *pool*: what others have set stays."""
    manifest = class_of(pool)
    rules = found["spec"].get("priorities") or []
    if len(rules) != len(before.priorities):
        raise InvalidRequestError(
            f"The pool {pool.name!r} has {len(rules)} priorities, and {len(before.priorities)} of them are Kinetic's.",
            hint=f"Change it with kubectl edit computeclass {pool.name}, or remove it and add it again.",
        )
    known = dict(zip(before.priorities, rules, strict=True))
    spec = manifest["spec"]
    spec["priorities"] = [
        known.get(priority, rule)
        for priority, rule in zip(pool.priorities, spec["priorities"], strict=True)
    ]
    spec.setdefault("minimumCapacity", None)
    manifest["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    return manifest


def new_pool(accelerator: str, *, name: str | None = None) -> Pool:
    """Return the pool that `add_pool` makes without options.

    Raises:
        InvalidRequestError: It is not valid.
    """
    first = parse_priority(accelerator)
    if first != Priority(accelerator=first.accelerator):
        raise InvalidRequestError(
            f"accelerator={accelerator!r} says how its machines are bought.",
            hint="Say that with the options flex_start and reservation of a pool.",
        )
    pool = Pool(name=name or pool_name(first.accelerator), priorities=(first,))
    check(pool)
    return pool


def check(pool: Pool) -> None:
    """Refuse a pool, or node pool, that Kinetic cannot make.

    Raises:
        InvalidRequestError: The hint says what to write instead.
    """
    check_pool(pool)
    for priority in pool.priorities:
        if needs_policy(priority.accelerator):
            raise InvalidRequestError(
                f"{describe(priority.accelerator)}: its machines need a workload policy, which no pool has.",
                hint=f"Add a node pool: {pool_command(priority.accelerator)}",
            )


def changed(pool: Pool, options: PoolOptions) -> Pool:
    """Return *pool* with what *options* name."""
    first, others = pool.priorities[0], pool.priorities[1:]
    if options.flex_start is not None or options.reservation is not None:
        flex_start, reservation = bool(options.flex_start), options.reservation
        first = replace(first, flex_start=flex_start, reservation=reservation)
    if options.fallback is not None:
        others = tuple(map(parse_priority, options.fallback))
    least = pool.min_nodes if options.min_nodes is None else options.min_nodes
    return replace(pool, priorities=(first, *others), min_nodes=least)


def list_pools(settings: Settings) -> list[PoolStatus]:
    """Return the pools of the cluster that *settings* name, by name: ComputeClasses, then node pools.

    Raises:
        ClusterError: The cluster cannot be reached, or refuses to list them.
    """
    cluster, gke, classes = _pools_of(settings)
    if not classes and not (gke and any(each.made_for for each in gke.pools)):
        return []
    return pools_in(cluster, gke, classes or [], workloads_in(cluster))


def pools_in(
    cluster: ApiServer,
    gke: GkeCluster | None,
    classes: list[Manifest],
    workloads: list[Manifest],
) -> list[PoolStatus]:
    """Return the pools that *classes* are, and the node pools that Kinetic made, with the *workloads* that use them.

    Raises:
        ClusterError: The cluster cannot be reached.
    """

    def nodes_with(label: str) -> list[Manifest] | None:
        try:
            return cluster.list("Node", labels=label)
        except NotPermittedError:
            return None

    found: list[PoolStatus | None] = []
    if classes:
        nodes = nodes_with(COMPUTE_CLASS)
        found += (pool_status(each, nodes, workloads) for each in classes)
    if ours := [each for each in (gke.pools if gke else ()) if each.made_for]:
        nodes = nodes_with(f"{NODE_POOL} in ({','.join(each.name for each in ours)})")
        for each in ours:
            try:
                found.append(node_pool_status(each, nodes, workloads))
            except UnknownAcceleratorError as error:
                warn_caller(f"The node pool {each.name!r} is left out: {error.message}")
    return sorted(filter(None, found), key=lambda each: (not each.is_class, each.pool.name))


def find_pool(settings: Settings, name: str) -> PoolStatus:
    """Return the pool *name*.

    Raises:
        InvalidRequestError: There is none, or Kinetic did not make it; the hint names those that exist.
        ClusterError: The cluster cannot be reached, or refuses to read it.
    """
    pools = {status.pool.name: status for status in reversed(list_pools(settings))}
    if name not in pools:
        raise InvalidRequestError(
            f"There is no pool {name!r} of Kinetic in the cluster.",
            hint=f"Its pools are: {', '.join(pools)}." if pools else "It has none.",
        )
    return pools[name]


def remove_pool(settings: Settings, name: str, *, poll: float = 2.0) -> None:
    """Remove the pool *name*; GKE removes its machines once nothing runs on them, those of a node pool at once.

    Jobs that wait for its machines are not scheduled any more; `find_pool` names them.

    Raises:
        InvalidRequestError: There is none, or Kinetic did not make it.
        ClusterError: The cluster cannot be reached, or refuses it.
        ProvisioningError: GKE refuses it, or it fails.
    """
    cluster, gke, classes = _pools_of(settings)
    for found in classes or ():
        if found["metadata"]["name"] == name and pool_of(found) is not None:
            cluster.delete(KIND, name, uid=found["metadata"]["uid"])
            return
    if gke is None or not any(each.made_for and each.name == name for each in gke.pools):
        raise InvalidRequestError(f"There is no pool {name!r} of Kinetic in {cluster.identity}.")
    from kinetic.provisioning.google.cloud import Cloud
    from kinetic.provisioning.google.node_pools import NodePoolsEdge
    from kinetic.provisioning.plan import Resource
    from kinetic.settings.settings import environment

    edge = NodePoolsEdge(Cloud(gke.project, environment(), poll=poll))
    edge.delete(Resource(kind="node pool", name=f"{gke.location}/{gke.name}/{name}"))


def workloads_in(cluster: ApiServer) -> list[Manifest]:
    """Return the workloads of jobs: of all namespaces, else of the user's own, with a warning."""
    kinds = [kind for kind in ("Job", "JobSet", "LeaderWorkerSet") if cluster.serves(kind)]
    labels = of_jobs(())

    def listed(*, everywhere: bool) -> list[Manifest]:
        found = parallel_map(
            lambda kind: cluster.list(kind, labels=labels, everywhere=everywhere),
            kinds,
            threads=len(kinds),
        )
        return list(chain.from_iterable(found))

    try:
        return listed(everywhere=True)
    except NotPermittedError:
        warn_caller(
            f"Jobs that use a pool are looked for in the namespace {cluster.identity.namespace!r} only: you may not "
            "list those of others."
        )
        return listed(everywhere=False)


def _pools_of(settings: Settings) -> tuple[ApiServer, GkeCluster | None, list[Manifest] | None]:
    """Return the cluster that *settings* name, what GKE knows of it, and its ComputeClasses that are Kinetic's."""
    from kinetic.backends.gke.checks import classes_in
    from kinetic.backends.gke.connect import find_cluster

    cluster, gke = find_cluster(settings)
    return cluster, gke, classes_in(cluster)
