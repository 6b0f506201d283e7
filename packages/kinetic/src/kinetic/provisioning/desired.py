"""What a cluster for Kinetic consists of, and the names of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kinetic.backends.gke.images.builders import Place
from kinetic.errors import ConfigurationError
from kinetic.jobs.services import jobs_bucket
from kinetic.provisioning.plan import DATA, Resource
from kinetic.retention.ages import BUILDS_EXPIRY, EXPIRY
from kinetic_k8s.manifests.access import SERVICE_ACCOUNT
from kinetic_k8s.manifests.names import is_namespace_name, region_of
from kinetic_k8s.manifests.releases import ADDONS, JOBSET

BILLING: Final = "cloudbilling.googleapis.com"
COMPUTE: Final = "compute.googleapis.com"
APIS: Final = (
    "artifactregistry.googleapis.com",
    BILLING,
    "cloudbuild.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    COMPUTE,
    "container.googleapis.com",
    "iam.googleapis.com",
    "storage.googleapis.com",
)
OBJECTS_ROLE: Final = "roles/storage.objectUser"
"""What lets somebody read, write and delete the objects of a bucket."""
USER_ROLES: Final = (
    "roles/cloudbuild.builds.editor",
    "roles/container.clusterViewer",
    "roles/serviceusage.serviceUsageConsumer",
)
"""What people who submit jobs may do in the project: start a build, find the cluster, use quota."""
RULES: Final = "those of this version"
"""What the roles of a namespace's users permit, and whom their bindings name."""
_IMAGE_DAYS: Final = 180
_RANGE: Final = "10.0.0.0/20"
"""The addresses of nodes; GKE adds ranges for pods and services."""
_NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_MOST_CLUSTER: Final = 40


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """How a cluster is made."""

    accelerators: Sequence[str] = ()
    """Pools for these are added, as by `kinetic pool add`."""
    namespaces: Sequence[str] = ()
    """Namespaces in which jobs will run; empty: that of the settings."""
    users: Sequence[str] = ()
    """Who gets what submitting jobs needs, as an IAM policy names them: `user:ada@example.com`, `group:…`,
    `serviceAccount:…`, `principal://…`."""
    standard: bool = False
    """A Standard cluster in a zone, instead of Autopilot in a region."""
    jobset: bool = True
    """Whether JobSet is installed, unless the cluster has it."""
    addons: Sequence[str] = ()
    """Add-ons that are installed besides, unless the cluster has them: `lws`, `kueue`."""
    network: str | None = None
    """A network of yours; None: one is made, with Cloud NAT for nodes without addresses of their own."""
    subnetwork: str | None = None
    """Its subnetwork in the region; None: it has the name of the network."""


@dataclass(frozen=True, kw_only=True)
class ClusterPlace:
    """A cluster by its name, and the names that follow from it."""

    project: str
    location: str
    """A region, or a zone for a Standard cluster."""
    cluster: str

    @property
    def region(self) -> str:
        """The region of `location`."""
        return checked_region(self.location)

    @property
    def jobs_bucket(self) -> str:
        """The bucket of the objects of jobs."""
        return jobs_bucket(self.project, self.cluster)

    @property
    def builds_bucket(self) -> str:
        """The bucket of image builds."""
        return self._place.builds_store.removeprefix("gs://")

    @property
    def builds_account(self) -> str:
        """The service account of image builds."""
        return self._place.builds_account

    @property
    def nodes_account(self) -> str:
        """The service account of nodes."""
        return f"kn-{self.cluster}-nodes@{self.project}.iam.gserviceaccount.com"

    @property
    def repository(self) -> str:
        """The repository for images: `LOCATION/NAME`."""
        host, _, name = self._place.repository.split("/")
        return f"{host.removesuffix('-docker.pkg.dev')}/{name}"

    @property
    def network(self) -> str:
        """The name of the network, its subnetwork and its router."""
        return f"kn-{self.cluster}"

    @property
    def _place(self) -> Place:
        return Place(project=self.project, region=self.region, cluster=self.cluster)


def checked_region(location: str) -> str:
    """Return the region of a zone, or *location* if that is a region.

    Raises:
        ConfigurationError: It is neither.
    """
    region = region_of(location)
    if region is None:
        raise ConfigurationError(
            f"{location!r} is neither a region nor a zone.",
            hint="Name one with --zone or KINETIC_ZONE, such as us-central1 or us-central1-a.",
        )
    return region


def place_of(project: str, location: str, cluster: str, *, standard: bool) -> ClusterPlace:
    """Return the place of a cluster, with all names checked before anything is made.

    Raises:
        ConfigurationError: A name is not valid, or too long for one that follows from it.
    """
    region = checked_region(location)
    if standard and location == region:
        raise ConfigurationError(
            f"A Standard cluster is in a zone, and {location} is a region.",
            hint=f"Name a zone with --zone, such as {region}-a.",
        )
    if not _NAME.fullmatch(cluster) or len(cluster) > _MOST_CLUSTER:
        raise ConfigurationError(
            f"{cluster!r} cannot be the name of a cluster.",
            hint=f"It has at most {_MOST_CLUSTER} lower-case letters, digits and dashes, and begins with a letter.",
        )
    place = ClusterPlace(
        project=project, location=location if standard else region, cluster=cluster
    )
    derived = (
        ("bucket", place.builds_bucket, 63),
        ("service account", place.builds_account.partition("@")[0], 30),
        ("repository", place.repository.partition("/")[2], 63),
        ("network", place.network, 63),
    )
    room = min(most - len(name) for _, name, most in derived)
    for what, name, most in derived:
        if len(name) > most:
            raise ConfigurationError(
                f"The cluster {cluster!r} needs a {what} {name!r}, which has {len(name)} characters: at most {most} "
                "are allowed.",
                hint=f"In this project the name of a cluster has at most {len(cluster) + room} characters.",
            )
    return place


def namespaces_of(names: Sequence[str]) -> tuple[str, ...]:
    """Return the *names*, each once.

    Raises:
        ConfigurationError: One of them cannot be the name of a namespace.
    """
    for name in names:
        if not is_namespace_name(name):
            raise ConfigurationError(
                f"{name!r} cannot be the name of a namespace.",
                hint="It has at most 63 lower-case letters, digits and dashes, and no dash at an end.",
            )
    return tuple(dict.fromkeys(names))


def services_of(project: str) -> Resource:
    """Return the APIs that a project needs."""
    return Resource(
        kind="APIs",
        name=project,
        settings={"enabled": APIS},
        adopted=True,
        kept="others may use them",
    )


def resources_of(
    place: ClusterPlace, options: ClusterOptions, number: str, namespaces: Sequence[str]
) -> list[Resource]:
    """Return everything that is made, each after what it needs. *number* is that of the project."""
    apis = services_of(place.project)
    builds = _bucket(place, place.builds_bucket, apis.id, soft_delete_days=0, expiry=BUILDS_EXPIRY)
    # The lease of `up` is in this bucket. So it is made first, and deleted last.
    first = (apis.id, builds.id)
    jobs = _bucket(place, place.jobs_bucket, *first, soft_delete_days=7, expiry=EXPIRY)
    repository = Resource(
        kind="repository",
        name=place.repository,
        settings={"delete_after_days": _IMAGE_DAYS},
        after=first,
    )
    nodes, builders = (
        Resource(kind="service account", name=name, after=first)
        for name in (place.nodes_account, place.builds_account)
    )
    networks = _networks(place, options, first)
    roles = [
        _role("roles/container.defaultNodeServiceAccount", nodes, None),
        _role("roles/artifactregistry.reader", nodes, repository),
        _role("roles/artifactregistry.writer", builders, repository),
        _role(OBJECTS_ROLE, builders, builds),
        _role("roles/logging.logWriter", builders, None),
    ]
    # Jobs write to their bucket for as long as there is a cluster.
    cluster = _cluster(place, options, (jobs, *networks, nodes, *roles[:2]), first)
    jobs_roles = [
        _role(
            OBJECTS_ROLE,
            f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
            f"{place.project}.svc.id.goog/subject/ns/{namespace}/sa/{SERVICE_ACCOUNT}",
            jobs,
            # The pool of identities exists once the project has a cluster.
            after=(cluster.id,),
        )
        for namespace in namespaces
    ]
    # What lets somebody submit jobs; what the user may do in the cluster is made there.
    rights = [
        (OBJECTS_ROLE, builds),
        (OBJECTS_ROLE, jobs),
        ("roles/artifactregistry.writer", repository),
        ("roles/iam.serviceAccountUser", builders),
        *((role, None) for role in USER_ROLES),
    ]
    return [
        apis,
        *(builds, jobs, repository, nodes, builders),
        *networks,
        *roles,
        cluster,
        *jobs_roles,
        *(_role(role, user, on, first) for user in options.users for role, on in rights),
        *_inside(options, namespaces, cluster),
    ]


def _bucket(
    place: ClusterPlace,
    name: str,
    *after: str,
    soft_delete_days: int,
    expiry: tuple[tuple[str, int], ...],
) -> Resource:
    settings = {
        "location": place.region.upper(),
        "uniform_access": True,
        "public_access": "enforced",
        "soft_delete_days": soft_delete_days,
        "delete_after_days": expiry,
    }
    kept = DATA if name == place.jobs_bucket else ""
    return Resource(kind="bucket", name=name, settings=settings, after=after, kept=kept)


def _networks(
    place: ClusterPlace, options: ClusterOptions, first: tuple[str, ...]
) -> tuple[Resource, ...]:
    region, theirs = f"regions/{place.region}", options.network
    name = f"global/networks/{theirs or place.network}"
    sub = f"{region}/subnetworks/{options.subnetwork or theirs or place.network}"
    if theirs is not None:
        return (
            Resource(kind="network", name=name, given=True),
            Resource(kind="subnetwork", name=sub, given=True),
        )
    network = Resource(kind="network", name=name, after=first)
    subnetwork = Resource(
        kind="subnetwork",
        name=sub,
        settings={"network": name, "range": _RANGE, "private_google_access": True},
        after=(network.id, *first),
    )
    router = Resource(
        kind="router",
        name=f"{region}/routers/{place.network}",
        settings={"network": name, "nat": True},
        after=(network.id, *first),
    )
    return network, subnetwork, router


def _cluster(
    place: ClusterPlace,
    options: ClusterOptions,
    needed: tuple[Resource, ...],
    first: tuple[str, ...],
) -> Resource:
    network = options.network or place.network
    return Resource(
        kind="cluster",
        name=f"{place.location}/{place.cluster}",
        settings={
            "autopilot": not options.standard,
            "release_channel": "REGULAR",
            "network": network,
            "subnetwork": options.subnetwork or network,
            "private_nodes": True,
            "dns_endpoint": True,
            "workload_identity": True,
            "fuse": True,
            "cost_allocation": True,
            "account": place.nodes_account,
        },
        after=(*first, *(each.id for each in needed if not each.given)),
    )


def _inside(
    options: ClusterOptions, namespaces: Sequence[str], cluster: Resource
) -> list[Resource]:
    def inside(kind: str, name: str, settings: Mapping[str, Any], *after: Resource) -> Resource:
        needed = tuple(each.id for each in (cluster, *after))
        return Resource(
            kind=kind, name=name, settings=settings, after=needed, inside=True, adopted=True
        )

    asked = [release for name, release in ADDONS.items() if name in options.addons]
    addons: list[Resource] = []
    # Kueue is the last one: until it runs, it lets no other controller start.
    for each in [JOBSET] * options.jobset + asked:
        addons.append(inside(each.name, each.version, {"version": each.version}, *addons[-1:]))
    access = {
        each: inside(
            "access", f"for jobs in the namespace {each}", {"namespace": each, "rules": RULES}
        )
        for each in namespaces
    }
    # Bindings name the roles that come with the access of jobs.
    users = [
        inside(
            "users",
            f"{user} in the namespace {each}",
            {"namespace": each, "member": user, "rules": RULES},
            access[each],
        )
        for each in namespaces
        for user in options.users
    ]
    pools = [inside("pool", each, {}) for each in options.accelerators]
    return [*addons, *access.values(), *users, *pools]


def _role(
    role: str, who: Resource | str, on: Resource | None, after: tuple[str, ...] = ()
) -> Resource:
    if isinstance(who, str):
        member, short = who, who.partition("/subject/")[2] or who
    else:
        member, short = f"serviceAccount:{who.name}", who.name.partition("@")[0]
    where = "project" if on is None else on.id
    needed = [each for each in (who, on) if isinstance(each, Resource)]
    return Resource(
        kind="role",
        name=f"{role} for {short} on the {where}",
        settings={"role": role, "member": member, "on": where},
        after=(*after, *(each.id for each in needed), *(needed[0].after if needed else ())),
        adopted=True,
    )
