"""Plain node pools of GKE, for clusters that make none by themselves: `kinetic pool add --node-pool`.

```python
prepared = prepare_node_pools(settings, "v6e-16", PoolOptions(slices=2))
prepared.apply()
```
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from kinetic.errors import InvalidRequestError
from kinetic.provisioning.clusters import POLL, Prepared
from kinetic.provisioning.desired import ClusterPlace
from kinetic.provisioning.lease import ProvisioningLease
from kinetic.provisioning.plan import Plan, Problem, Resource, plan_up
from kinetic.provisioning.pools import PoolOptions, changed, check, new_pool
from kinetic.provisioning.quotas import warn_of_quotas
from kinetic.settings.settings import environment
from kinetic.target import Target
from kinetic_k8s.accelerators.types import Cpu, describe
from kinetic_k8s.errors import UnknownAcceleratorError
from kinetic_k8s.manifests.compute_class import Pool, parse_priority
from kinetic_k8s.reading.preflight import pool_command

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.cluster.gke import GkeCluster

_LONGEST: Final = 40
"""Characters of the name of a node pool."""


def prepare_node_pools(
    settings: Settings,
    accelerator: str,
    options: PoolOptions = PoolOptions(),  # noqa: B008 - it is frozen
    *,
    name: str | None = None,
    poll: float = POLL,
) -> Prepared:
    """Plan the node pools for jobs on *accelerator*: one, or one for each slice of several machines.

    Nothing is changed; what is not given stays as it is. A quota that is too low is a warning. The settings name the cluster, and may name the zone.

    Args:
        settings: They name the cluster by its project, zone and name.
        accelerator: Such as `v6e-8`, or `v6e-8:spot` for spot machines.
        options: What else the pools are.
        name: The name, or for slices of several machines its beginning; by default it follows from the accelerator.
        poll: Seconds between two looks at what takes time.

    Raises:
        InvalidRequestError: The options make no sense, or no node pool can be like that.
        ConfigurationError: The region of the cluster has no such machines; the hint names the nearest that has.
        ClusterError, ProvisioningError: The cluster cannot be read.
    """
    from kinetic.backends.gke.connect import find_cluster
    from kinetic.provisioning.google.cloud import Cloud, check_project
    from kinetic.provisioning.google.networks import Compute
    from kinetic.provisioning.google.node_pools import NodePoolsEdge
    from kinetic.provisioning.google.places import check_place

    draft = _draft(accelerator, options, name)
    check_project(settings.project.value)
    _, gke = find_cluster(settings, replace(Target.in_settings(settings), kube_context=None))
    assert gke is not None, "it was found by its project"
    if gke.autopilot:
        raise InvalidRequestError(
            f"{gke.name} is an Autopilot cluster, which has no node pools of its own.",
            hint="Leave --node-pool out.",
        )
    pool, names, limits = _wanted(draft, options, gke)
    priority = pool.priorities[0]
    cloud = Cloud(gke.project, environment(), poll=poll)
    place = ClusterPlace(project=gke.project, location=gke.location, cluster=gke.name)
    region = replace(place, location=place.region)  # Other zones of it will do.
    zones = check_place(Compute(cloud), region, [priority], settings.zone.value)
    zone = next((each for each in (settings.zone.value, gke.location) if each in zones), zones[0])
    warn_of_quotas(replace(place, location=zone), [priority])
    edge = NodePoolsEdge(cloud, zone)
    wanted: list[Resource] = []
    for each, (least, most) in zip(names, limits, strict=True):
        path = f"{gke.location}/{gke.name}/{each}"
        machines = {"machines": str(priority), "min_nodes": least, "max_nodes": most}
        after = tuple(one.id for one in wanted[-1:])  # GKE makes one at a time.
        wanted.append(Resource(kind="node pool", name=path, settings=machines, after=after))
    actual = {each.id: edge.read(each) for each in wanted}
    plan = plan_up(wanted, actual, {"node pool": edge.fixed})
    problems = [each.message for each in plan.problems]
    problems += [
        f"The {step.resource.id} exists, and {step.detail}."
        for step in plan.steps
        if step.action == "replace" and step.detail.startswith("it failed")
    ]
    hint = "Choose another name with --name, or remove it with: kinetic pool remove NAME"
    plan = Plan(plan.steps, tuple(Problem(each, hint) for each in problems))
    lease = ProvisioningLease(place.builds_bucket, "kinetic pool add")
    return Prepared(place, plan, actual, cloud, {"node pool": edge}, lease)


def _draft(accelerator: str, options: PoolOptions, name: str | None) -> Pool:
    """Return the pool without its options; refuse what no node pool can be before anything is asked of Google."""
    draft = new_pool(accelerator, name=name)
    if name is None:
        draft = replace(draft, name=draft.name.replace("kinetic-", "kinetic-np-", 1))
    if isinstance(draft.accelerator, Cpu):
        raise InvalidRequestError(
            "A node pool has machines of one type, and cpu names none.",
            hint=f"Choose the type: {pool_command(draft.accelerator)}",
        )
    if options.fallback:
        raise InvalidRequestError(
            "A node pool has machines of one kind, which nothing stands in for.",
            hint="Leave --fallback out, or --node-pool; or add a second node pool.",
        )
    check(changed(draft, options))
    _counts_of(draft, options)
    return draft


def _counts_of(pool: Pool, options: PoolOptions) -> tuple[int | None, int | None]:
    """Return how many slices, and how many machines at least, *options* name; None: they do not."""
    hosts, most = pool.accelerator.hosts, options.max_nodes
    if most is not None and most % hosts:
        raise InvalidRequestError(
            f"{most} machines are no whole number of slices: {describe(pool.accelerator)}.",
            hint=f"Write a multiple of {hosts} for --max-nodes.",
        )
    slices = options.slices if most is None else most // hosts
    if options.slices is not None and options.slices != slices:
        raise InvalidRequestError(
            f"{options.slices} slices have {options.slices * hosts} machines, and --max-nodes is {most}.",
            hint="Leave one of --slices and --max-nodes out.",
        )
    least = options.min_nodes
    if slices is not None and least is not None and least > slices * hosts:
        raise InvalidRequestError(
            f"At least {least} machines are to be kept, and at most {slices * hosts} to exist.",
            hint="Lower --min-nodes, or raise --max-nodes or --slices.",
        )
    if least and any(each.flex_start for each in changed(pool, options).priorities):
        raise InvalidRequestError(
            "Machines of flex-start are lent for a job, and are not kept.",
            hint="Leave --min-nodes out.",
        )
    return slices, least


def _wanted(
    draft: Pool, options: PoolOptions, gke: GkeCluster
) -> tuple[Pool, list[str], list[tuple[int, int]]]:
    """Return the pool, and the names and limits of its node pools, with what is not given as it is in *gke*."""
    hosts = draft.accelerator.hosts
    many = draft.accelerator.multi_host
    pattern = re.escape(draft.name) + (r"-(0|[1-9]\d*)" if many else "()")
    # By its number a slice's, which may have gaps; any other is number 0.
    there = {
        int(named[1] or 0): each
        for each in gke.pools
        if each.made_for and (named := re.fullmatch(pattern, each.name))
    }
    for known in there.values():
        with suppress(UnknownAcceleratorError):  # The plan says that it is for something else.
            before = parse_priority(known.made_for)
            if before.accelerator == draft.accelerator:
                draft = replace(draft, priorities=(before,))
                break
    pool = changed(draft, options)
    slices, least = _counts_of(draft, options)
    least = sum(each.min_nodes for each in there.values()) if least is None else least
    most = len(there) if many else sum(each.max_nodes or 1 for each in there.values())
    slices = slices or max(1, most, least // hosts)
    _counts_of(draft, replace(options, min_nodes=least, max_nodes=slices * hosts, slices=None))
    if many and slices < len(there):
        raise InvalidRequestError(
            f"{gke.name} has {len(there)} node pools {draft.name}-…, one for each slice, and {slices} are wanted.",
            hint=f"Remove one with: kinetic pool remove {there[max(there)].name}",
        )
    free = (each for each in count() if each not in there)
    numbers = sorted([*there, *islice(free, slices - len(there))]) if many else [0]
    names = [f"{draft.name}-{each}" if many else draft.name for each in numbers]
    if len(names[-1]) > _LONGEST:
        raise InvalidRequestError(
            f"The node pool {names[-1]!r} has a name of {len(names[-1])} characters.",
            hint=f"At most {_LONGEST} are allowed; name it with --name.",
        )
    if not many:
        return pool, names, [(least, slices)]
    # A slice is there as a whole, or not at all; those that are kept stay so first.
    first = sorted(numbers, key=lambda each: each not in there or not there[each].min_nodes)
    kept = first[: least // hosts]
    return pool, names, [(hosts if each in kept else 0, hosts) for each in numbers]
