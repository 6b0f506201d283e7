"""Make a cluster with everything that jobs need, find it, and remove it: `kinetic up`, `init` and `down`.

```python
prepared = prepare_up(settings, ClusterOptions(accelerators=["v6e-8"]))
for step in prepared.plan.changes:
    print(step.action, step.resource.id)
prepared.apply()
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from kinetic.errors import ConfigurationError, ProvisioningError
from kinetic.jobs.discover import jobs_in
from kinetic.provisioning.apply import Progress, apply
from kinetic.provisioning.desired import (
    COMPUTE,
    OBJECTS_ROLE,
    ClusterOptions,
    ClusterPlace,
    namespaces_of,
    place_of,
    resources_of,
    services_of,
)
from kinetic.provisioning.inside import inside_edges
from kinetic.provisioning.lease import ProvisioningLease
from kinetic.provisioning.plan import (
    Actual,
    Plan,
    Problem,
    Resource,
    State,
    Step,
    foreign,
    plan_down,
    plan_up,
)
from kinetic.provisioning.quotas import warn_of_quotas
from kinetic.settings.settings import environment
from kinetic_k8s.manifests.access import user_bindings
from kinetic_k8s.manifests.compute_class import parse_priority
from kinetic_k8s.manifests.releases import ADDONS
from kinetic_payload.errors import KineticError
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.provisioning.edge import Edge, Edges
    from kinetic.provisioning.google.cloud import Cloud
    from kinetic.provisioning.google.clusters import ClustersEdge, FoundCluster
    from kinetic.provisioning.google.roles import RolesEdge
    from kinetic.provisioning.inside import InsideEdge
    from kinetic.settings.settings import Settings
    from kinetic_k8s.manifests.compute_class import Priority

POLL: Final = 2.0
_READS: Final = 32

Report = Callable[[Step, str], None]
Failed = Callable[[Resource, KineticError], None]


@dataclass(frozen=True)
class Prepared:
    """A plan, and what performs it."""

    place: ClusterPlace
    plan: Plan
    actual: Mapping[str, Actual | None] = field(repr=False)
    """By the id of a resource, what was found."""
    cloud: Cloud = field(repr=False)
    edges: Edges = field(repr=False)
    lease: ProvisioningLease = field(repr=False)

    def apply(self, report: Report = lambda _step, _what: None) -> Progress:
        """Perform the plan. Run again after a failure, or Ctrl-C, it continues: plan anew first.

        Args:
            report: Called with a step when it begins (`begun`) and when it has ended (`done`).

        Raises:
            ProvisioningError: A step failed; the notes say what was done and what was not.
            ProvisioningBusyError: Another process changes this cluster.
        """
        if self.plan.problems:
            raise ValueError("A plan with problems cannot be applied.")
        builds = self.actual.get(f"bucket {self.place.builds_bucket}")
        if builds is not None and builds.ours:
            self.lease.acquire()
        try:
            return apply(self.plan, self._perform, report=report, tick=self.lease.renew)
        finally:
            self.lease.release()

    def _perform(self, step: Step) -> None:
        edge, resource = self.edges[step.resource.kind], step.resource
        match step.action:
            case "create":
                edge.create(resource)
                self._found(resource, "failed")
                if self._is_builds(resource):
                    self.lease.acquire()
            case "replace":
                found = self._found(resource)
                if found is not None and found.state in ("failed", "leaving"):
                    edge.delete(resource)
                edge.create(resource)
                self._found(resource, "failed")
            case "change":
                edge.wait(resource)
                self._found(resource)
                edge.change(resource)
            case "wait":
                edge.wait(resource)
                self._found(resource, "failed")
            case "delete":
                self._found(resource)
                if self._is_builds(resource):
                    self.lease.forget()
                edge.delete(resource)
            case "keep":
                pass

    def _found(self, resource: Resource, refused: State | None = None) -> Actual | None:
        """Return the resource as it is now, which may not be what the plan was made from.

        Raises:
            ProvisioningError: It is somebody else's, or in the state *refused*.
        """
        if resource.adopted:
            return None
        found = self.edges[resource.kind].read(resource)
        if found is not None and not found.ours:
            problem = foreign(resource, found)
            raise ProvisioningError(problem.message, hint=problem.hint)
        if found is not None and found.state == refused:
            raise ProvisioningError(
                f"The {resource.id} {refused}: {found.detail}.",
                hint="Run the command again: its plan says what can be done.",
            )
        return found

    def _is_builds(self, resource: Resource) -> bool:
        return (resource.kind, resource.name) == ("bucket", self.place.builds_bucket)


def prepare_up(
    settings: Settings, options: ClusterOptions | None = None, *, poll: float = POLL
) -> Prepared:
    """Compare the cluster that *settings* name with what exists. Nothing is changed.

    Args:
        settings: They name the cluster.
        options: How it is made.
        poll: Seconds between two looks at what takes time.

    Raises:
        ConfigurationError: A name is not valid, or too long for one that follows from it; or the place does not
            exist, or has not the machines.
        ProvisioningError: What exists cannot be read.
        CloudPermissionError: You lack permissions for what the plan would do.
    """
    prepared = compare(settings, options or ClusterOptions(), poll=poll)
    _check_permissions(prepared)
    new = [s.resource.name for s in prepared.plan.changes if s.resource.kind == "pool"]
    warn_of_quotas(prepared.place, map(parse_priority, new))
    return prepared


def compare(
    settings: Settings,
    options: ClusterOptions,
    *,
    poll: float = POLL,
    timeout: float | None = None,
    failed: Failed | None = None,
) -> Prepared:
    """Compare the cluster that *settings* name with what exists, whatever the user may change.

    Args:
        settings: They name the cluster.
        options: What is wanted.
        poll: Seconds between two looks at what takes time.
        timeout: Seconds for each resource; None: the time that a change would get.
        failed: Called with a resource that cannot be read; None: that ends the comparison.

    Raises:
        ConfigurationError, ProvisioningError: See `prepare_up`.
    """
    from kinetic.provisioning.google.cloud import Cloud, check_project
    from kinetic.provisioning.google.networks import Compute
    from kinetic.provisioning.google.places import check_place

    namespaces = namespaces_of(options.namespaces or [settings.namespace.value])
    options, priorities = _checked(options, namespaces)
    project = check_project(settings.project.value)
    place = place_of(
        project, settings.zone.value, settings.cluster.value, standard=options.standard
    )
    limits = {} if timeout is None else {"timeout": timeout, "patience": timeout}
    cloud = Cloud(project, environment(), poll=poll, **limits)
    edges = _edges(cloud, place.cluster)
    apis = services_of(project)
    enabled = edges["APIs"].read(apis)
    edges |= inside_edges(cloud, settings, place.location)
    wanted = resources_of(place, options, cloud.number, namespaces)
    unread: set[str] = set()

    def fail(resource: Resource, error: KineticError) -> None:
        if failed is None:
            raise error
        unread.add(resource.id)
        failed(resource, error)

    def check_machines() -> None:
        if COMPUTE in cloud.enabled:
            check_place(Compute(cloud), place, priorities, settings.zone.value)

    looks: list[Callable[[], Any]] = [
        check_machines,
        lambda: _locations(cloud, edges, place),
        lambda: _read(cloud, edges, wanted[1:], fail),
    ]
    _, locations, found = parallel_map(lambda look: look(), looks, threads=len(looks))
    actual = {apis.id: enabled, **found}
    plan = plan_up(
        # Of what hangs on something that could not be read, nothing is known.
        [each for each in wanted if unread.isdisjoint((each.id, each.settings.get("on")))],
        actual,
        {kind: edge.fixed for kind, edge in edges.items()},
    )
    # A cluster of this name that is somewhere else would share all names with this one.
    elsewhere = [
        Problem(
            f"The project has a cluster {place.cluster!r} in {there}, and {place.location} was asked for.",
            f"Name its place with --zone {there}{' --standard' * (there.count('-') > 1)}, or choose another name with "
            "--cluster.",
        )
        for there in locations
        if there != place.location
    ]
    plan = Plan(plan.steps, (*elsewhere[:1], *plan.problems))
    return Prepared(
        place, plan, actual, cloud, edges, ProvisioningLease(place.builds_bucket, "kinetic up")
    )


def _checked(
    options: ClusterOptions, namespaces: Sequence[str]
) -> tuple[ClusterOptions, list[Priority]]:
    """Return *options* with each pool and each user once, and the machines of the pools."""
    from kinetic.provisioning.pools import new_pool

    if unknown := {*options.addons} - {*ADDONS}:
        raise ConfigurationError(
            f"There is no add-on {min(unknown)!r}.", hint=f"These exist: {', '.join(ADDONS)}."
        )
    # Names of one accelerator are one pool.
    accelerators: dict[Priority, str] = {}
    for name in options.accelerators:
        accelerators.setdefault(new_pool(name).priorities[0], name)
    # An IAM policy has addresses in lower case, and Kubernetes compares the case.
    lowered = (u.lower() if u.startswith(("user:", "group:")) else u for u in options.users)
    users = tuple(dict.fromkeys(lowered))
    for user in users:
        user_bindings(namespaces[0], user)  # Refuses what cannot be bound.
    return replace(options, accelerators=(*accelerators.values(),), users=users), [*accelerators]


def prepare_down(settings: Settings, *, delete_data: bool = False, poll: float = POLL) -> Prepared:
    """Find what exists of the cluster that *settings* name, to remove it. Nothing is changed.

    Args:
        settings: They name the cluster.
        delete_data: Delete the bucket of jobs, too, with all outputs.
        poll: Seconds between two looks at what takes time.

    Raises:
        ConfigurationError: A name is not valid.
        ProvisioningError: What exists cannot be read.
        CloudPermissionError: You lack permissions for what the plan would do.
    """
    from kinetic.provisioning.google.cloud import Cloud, check_project

    project = check_project(settings.project.value)
    place = place_of(project, settings.zone.value, settings.cluster.value, standard=False)
    cloud = Cloud(project, environment(), poll=poll)
    edges = _edges(cloud, place.cluster, contents=True)
    edges["APIs"].read(services_of(project))
    found = _locations(cloud, edges, place, ours=True)
    if not found:
        # The cluster is gone, or was never made; its builds bucket may be there.
        builds = edges["bucket"].read(Resource(kind="bucket", name=place.builds_bucket))
        if builds is not None and builds.ours:
            place = replace(place, location=builds.settings["location"].lower())
    elif place.location not in found:
        place = replace(place, location=found[0])
    edges |= inside_edges(cloud, settings, place.location)
    namespaces, others = _members(cloud, edges, place)
    options = ClusterOptions(standard=place.location != place.region)
    everything = resources_of(place, options, cloud.number, namespaces)
    wanted = [each for each in everything if not each.inside]
    actual = _read(cloud, edges, wanted[1:])
    plan = plan_down(wanted, actual, delete_data=delete_data)
    # Nothing says who gave people their rights. Those on what is deleted go with it; others stay, and are named.
    note = f"; these keep {OBJECTS_ROLE} on it: {', '.join(sorted(others))}" if others else ""
    steps = [
        replace(step, detail=step.detail + note)
        if (step.action, step.resource.name) == ("keep", place.jobs_bucket)
        else step
        for step in plan.steps
    ]
    plan = replace(plan, steps=tuple(steps))
    prepared = Prepared(
        place, plan, actual, cloud, edges, ProvisioningLease(place.builds_bucket, "kinetic down")
    )
    _check_permissions(prepared)
    return prepared


def running_jobs(prepared: Prepared) -> list[str]:
    """Return the ids of jobs that have not ended in the cluster that the plan deletes or replaces.

    Raises:
        KineticError: The cluster, or the bucket of jobs, cannot be asked.
    """
    from kinetic.provisioning.pools import workloads_in
    from kinetic_k8s.manifests.labels import JOB_ID
    from kinetic_k8s.reading.workloads import WorkloadView

    ends = {step.action for step in prepared.plan.changes if step.resource.kind == "cluster"}
    if "delete" in ends:
        cluster = cast("InsideEdge", prepared.edges["access"]).cluster
        views = map(WorkloadView, workloads_in(cluster))
        return sorted({each.labels.get(JOB_ID, "") for each in views if not each.has_ended} - {""})
    bucket = prepared.place.jobs_bucket
    if "replace" not in ends or prepared.actual.get(f"bucket {bucket}") is None:
        return []
    # A cluster that failed may not answer, and would be taken for the one that replaces it.
    store = open_store(parse_location(f"gs://{bucket}"))
    return [job.job_id for job in jobs_in(store) if job._session.listed == "no outcome"]


def find_projects() -> list[str]:
    """Return the ids of the projects that the user can see, in order."""
    from kinetic.provisioning.google.cloud import Cloud
    from kinetic.provisioning.google.projects import visible_projects

    return visible_projects(Cloud("-", environment()))


def find_clusters(project: str) -> list[FoundCluster]:
    """Return the clusters of *project*, those of Kinetic first; none if the GKE API is not enabled.

    Raises:
        ConfigurationError: *project* cannot be the id of a project.
    """
    from kinetic.provisioning.google.cloud import Cloud, check_project
    from kinetic.provisioning.google.clusters import ClustersEdge
    from kinetic.provisioning.google.services import ServicesEdge

    cloud = Cloud(check_project(project), environment())
    clusters = ClustersEdge(cloud)
    found = clusters.found() if ServicesEdge(cloud).read_enabled(clusters.service) else []
    return sorted(found, key=lambda each: (not each.ours, each.name))


def _edges(cloud: Cloud, cluster: str, *, contents: bool = False) -> dict[str, Edge]:
    """Return the edges to Google's services, by kind."""
    from kinetic.provisioning.google.accounts import AccountsEdge
    from kinetic.provisioning.google.buckets import BucketsEdge
    from kinetic.provisioning.google.clusters import ClustersEdge
    from kinetic.provisioning.google.networks import NetworksEdge
    from kinetic.provisioning.google.repositories import RepositoriesEdge
    from kinetic.provisioning.google.roles import RolesEdge
    from kinetic.provisioning.google.services import ServicesEdge

    networks = NetworksEdge(cloud, cluster)
    return {
        "APIs": ServicesEdge(cloud),
        "bucket": BucketsEdge(cloud, cluster, contents=contents),
        "repository": RepositoriesEdge(cloud, cluster),
        "service account": AccountsEdge(cloud, cluster),
        "network": networks,
        "subnetwork": networks,
        "router": networks,
        "role": RolesEdge(cloud),
        "cluster": ClustersEdge(cloud),
    }


def _read(
    cloud: Cloud,
    edges: Edges,
    wanted: Sequence[Resource],
    failed: Failed | None = None,
) -> dict[str, Actual | None]:
    """Read what exists of *wanted*, many at a time.

    Of an API that is not enabled nothing exists, and in a cluster that is not ready nothing that can be read.
    """

    def read(resource: Resource) -> tuple[str, Actual | None]:
        edge = edges[resource.kind]
        needed = edge.service_of(resource)
        if needed and needed not in cloud.enabled:
            return resource.id, None
        try:
            return resource.id, edge.read(resource)
        except KineticError as error:
            if failed is None:
                raise
            failed(resource, error)
            return resource.id, None

    def read_with(resource: Resource) -> list[tuple[str, Actual | None]]:
        """Read a resource, and then what can only be read if it is there and ours."""
        first = read(resource)
        actual, others = first[1], list[Resource]()
        if resource.kind == "cluster" and actual is not None and actual.state == "ready":
            others = [each for each in wanted if each.inside]
        # Who has roles on what is somebody else's is not told, and not asked.
        if actual is not None and actual.ours:
            others += [each for each in wanted if each.settings.get("on") == resource.id]
        return [first, *parallel_map(read, others, threads=_READS)]

    # The cluster first: what is in it waits for it.
    outside = sorted(
        (e for e in wanted if not e.inside and e.settings.get("on") in (None, "project")),
        key=lambda each: each.kind != "cluster",
    )
    return dict(chain.from_iterable(parallel_map(read_with, outside, threads=_READS)))


def _locations(cloud: Cloud, edges: Edges, place: ClusterPlace, *, ours: bool = False) -> list[str]:
    """Return where the project has clusters of this name; *ours*: only those that Kinetic made."""
    clusters = cast("ClustersEdge", edges["cluster"])
    found = clusters.found() if clusters.service in cloud.enabled else []
    named = [each for each in found if each.name == place.cluster]
    return sorted(each.location for each in named if each.ours or not ours)


def _members(cloud: Cloud, edges: Edges, place: ClusterPlace) -> tuple[list[str], list[str]]:
    """Return the namespaces whose jobs may use the bucket of jobs, and who else may."""
    actual = edges["bucket"].read(Resource(kind="bucket", name=place.jobs_bucket))
    if actual is None or not actual.ours:
        return [], []
    roles = cast("RolesEdge", edges["role"])
    wanted = resources_of(place, ClusterOptions(), cloud.number, ["*"])
    job = next(each.settings["member"] for each in wanted if "*" in each.settings.get("member", ""))
    start, end = job.split("*")
    namespaces, others = list[str](), list[str]()
    for member in roles.members(f"bucket {place.jobs_bucket}", OBJECTS_ROLE):
        if member.startswith(start) and member.endswith(end):
            namespaces.append(member[len(start) : -len(end)])
        else:
            others.append(member)
    return namespaces, others


def _check_permissions(prepared: Prepared) -> None:
    """Make sure that the user has the permissions for the plan, as far as the project can tell.

    Nothing is known while the API that tells is not enabled.

    Raises:
        CloudPermissionError: Some are missing.
    """
    from kinetic.provisioning.google.cloud import permission_error
    from kinetic.provisioning.google.projects import PROJECT_SERVICE, missing_in_project

    cloud, edges = prepared.cloud, prepared.edges
    needed = {
        permission
        for step in prepared.plan.changes
        for permission in edges[step.resource.kind].permissions(step.action, step.resource)
    }
    if not needed or PROJECT_SERVICE not in cloud.enabled:
        return
    if missing := missing_in_project(cloud, sorted(needed)):
        raise permission_error(
            f"You lack permissions in the project {cloud.project!r}: {', '.join(missing)}.",
            missing,
            cloud,
        )
