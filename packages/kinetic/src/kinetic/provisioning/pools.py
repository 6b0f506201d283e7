"""Pools of a cluster: add one, list them, remove one. A pool is a ComputeClass, from which GKE makes machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError
from kinetic.user_warnings import warn_caller
from kinetic_k8s.accelerators.types import describe
from kinetic_k8s.errors import ConflictError, NotPermittedError
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
from kinetic_k8s.manifests.labels import of_jobs
from kinetic_k8s.reading.pools import PoolStatus, pool_status
from kinetic_k8s.reading.preflight import needs_policy, pool_command
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.cluster.client import ApiServer
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

    Nothing is billed until a job asks for machines, except for `min_nodes`.

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
    first = draft.priorities[0]
    _check(_changed(draft, options))  # Before anything is asked of the cluster.
    cluster, classes = _pools_of(settings, first)
    found = cluster.get(KIND, draft.name)
    before = None if found is None else pool_of(found)
    if found is not None and (before is None or before.accelerator != first.accelerator):
        raise InvalidRequestError(
            f"{cluster.identity} has a ComputeClass {draft.name!r} "
            f"{'that Kinetic did not make' if before is None else f'for {before.accelerator}'}.",
            hint="Choose another name with --name.",
        )
    other = pool_for(first.accelerator, classes)
    if other is not None and other.accelerator == first.accelerator and other.name != draft.name:
        raise InvalidRequestError(
            f"Jobs on {first.accelerator} run in the pool {other.name!r} of {cluster.identity}.",
            hint=f"Change that one with --name {other.name}, or remove it first.",
        )
    pool = _changed(before or draft, options)
    _check(pool)
    manifest = class_of(pool)
    if found is None or before is None:
        return AddedPool(pool, None, cluster.create(manifest, dry_run=dry_run))
    # What others have set stays.
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
    written = cluster.patch(KIND, pool.name, manifest, merge="plain", dry_run=dry_run)
    if written is None:
        raise ConflictError(
            f"The pool {pool.name!r} was removed at this moment.", hint="Add it again."
        )
    return AddedPool(pool, before, written)


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
    _check(pool)
    return pool


def _check(pool: Pool) -> None:
    check_pool(pool)
    for priority in pool.priorities:
        if needs_policy(priority.accelerator):
            raise InvalidRequestError(
                f"{describe(priority.accelerator)}: its machines need a workload policy, which no pool has.",
                hint=f"Add a node pool: {pool_command(priority.accelerator)}",
            )


def _changed(pool: Pool, options: PoolOptions) -> Pool:
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
    """Return the pools of the cluster that *settings* name, by name.

    Raises:
        InvalidRequestError: The cluster serves no ComputeClasses.
        ClusterError: The cluster cannot be reached, or refuses to list them.
    """
    cluster, classes = _pools_of(settings)
    return pools_in(cluster, classes, workloads_in(cluster)) if classes else []


def pools_in(
    cluster: ApiServer, classes: list[Manifest], workloads: list[Manifest]
) -> list[PoolStatus]:
    """Return the pools that *classes* are, by name, with the *workloads* of jobs that use them.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    try:
        nodes = cluster.list("Node", labels=COMPUTE_CLASS)
    except NotPermittedError:
        nodes = None
    statuses = (pool_status(each, nodes, workloads) for each in classes)
    return sorted(filter(None, statuses), key=lambda status: status.pool.name)


def find_pool(settings: Settings, name: str) -> PoolStatus:
    """Return the pool *name*.

    Raises:
        InvalidRequestError: There is none, or Kinetic did not make it; the hint names those that exist.
        ClusterError: The cluster cannot be reached, or refuses to read it.
    """
    pools = {status.pool.name: status for status in list_pools(settings)}
    if name not in pools:
        raise InvalidRequestError(
            f"There is no pool {name!r} of Kinetic in the cluster.",
            hint=f"Its pools are: {', '.join(pools)}." if pools else "It has none.",
        )
    return pools[name]


def remove_pool(settings: Settings, name: str) -> None:
    """Remove the pool *name*; GKE removes its machines once nothing runs on them.

    Jobs that wait for its machines are not scheduled any more; `find_pool` names them.

    Raises:
        InvalidRequestError: There is none, or Kinetic did not make it.
        ClusterError: The cluster cannot be reached, or refuses it.
    """
    cluster, _ = _pools_of(settings)
    found = cluster.get(KIND, name)
    if found is None or pool_of(found) is None:
        raise InvalidRequestError(f"There is no pool {name!r} of Kinetic in {cluster.identity}.")
    cluster.delete(KIND, name, uid=found["metadata"]["uid"])


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


def _pools_of(
    settings: Settings, priority: Priority | None = None
) -> tuple[ApiServer, list[Manifest]]:
    """Return the cluster that *settings* name, and its ComputeClasses that are Kinetic's."""
    from kinetic.backends.gke.checks import classes_in
    from kinetic.backends.gke.connect import find_cluster
    from kinetic.settings.settings import environment
    from kinetic.target import Target

    cluster, gke = find_cluster(Target.in_settings(settings), settings, environment())
    classes = classes_in(cluster)
    if classes is not None:
        return cluster, classes
    hint = "They exist on GKE from 1.30.3, and there make node pools by themselves from 1.33.3."
    if priority is not None:
        where = (gke.name, gke.location) if gke else ()
        hint += f" Elsewhere, add a node pool: {pool_command(priority.accelerator, *where)}"
    raise InvalidRequestError(
        f"{cluster.identity} serves no ComputeClasses, which pools are.", hint=hint
    )
