"""The GKE API, through Google's client: clusters by name, their addresses, node pools and credentials."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry, if_exception_type
from google.auth.exceptions import GoogleAuthError
from google.cloud import container_v1

from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.cluster.translation import GKE_TITLE
from kinetic_k8s.errors import (
    ClusterError,
    ClusterUnreachableError,
    InvalidRequestError,
    NotAuthenticatedError,
    NotPermittedError,
    ServiceDisabledError,
    UnknownClusterError,
)
from kinetic_k8s.manifests.names import region_of
from kinetic_k8s.reading.preflight import NodePool
from kinetic_payload.http.google import (
    CLOUD_PLATFORM,
    LOGIN,
    fresh_credentials,
    google_errors,
    renewal_time,
)
from kinetic_payload.proxies import proxy_of_environment

SCOPES: Final = (
    CLOUD_PLATFORM,
    # The API server identifies users by their address.
    "https://www.googleapis.com/auth/userinfo.email",
)


VIEWER: Final = "roles/container.clusterViewer"
_TIMEOUT: Final = 20.0
"""The longest time of one call, in seconds."""
_LIMIT: Final = 60.0
_MOST_NAMED: Final = 10
MADE_FOR: Final = "kinetic-accelerator"
"""The label, for bills, of the machines of a node pool that Kinetic made; its value is the name of the accelerator."""
_FAILED: Final = ("ERROR", "RUNNING_WITH_ERROR")
_TAINT_EFFECTS: Final = {
    "NO_SCHEDULE": "NoSchedule",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
    "NO_EXECUTE": "NoExecute",
}


@dataclass(frozen=True, kw_only=True)
class GkeCluster:
    """The facts about a cluster that the GKE API gives."""

    project: str
    location: str
    """Its zone or its region."""
    name: str
    server: str
    ca: str | None = field(repr=False)
    """None: its certificate is signed by a public authority."""
    credentials: Any = field(repr=False, compare=False)
    """google-auth's credentials with which it was found."""
    look_up: Callable[[float], GkeCluster] = field(repr=False, compare=False)
    """Return the cluster of this name as the GKE API describes it now, within so many seconds."""
    status: str = ""
    """In a word of GKE, such as RUNNING or RECONCILING."""
    version: str = ""
    """That of its control plane."""
    network: str = ""
    subnetwork: str = ""
    autopilot: bool = False
    pools: tuple[NodePool, ...] = ()
    autoprovisioning: bool = False
    """Whether it adds node pools by itself, as every Autopilot cluster does."""
    compute_classes: bool = False
    """Whether it has a default ComputeClass, which may add node pools."""
    fuse: bool = False
    """Whether pods can mount buckets (the add-on Cloud Storage FUSE)."""

    def access(self, namespace: str) -> Access:
        """Return how its API server is reached, as the user of the Application Default Credentials."""
        first = iter([self.credentials])

        def credentials() -> Credentials:
            # Later ones are those of that moment, so that a login during a wait is noticed.
            known = next(first, None)
            with _google_errors():
                found = known if known is not None and known.valid else fresh_credentials(SCOPES)
            headers = {"Authorization": f"Bearer {found.token}"}
            return Credentials(headers=headers, renew_at=renewal_time(found))

        return Access(
            server=self.server,
            credentials=credentials,
            namespace=namespace,
            ca=self.ca,
            proxy=proxy_of_environment(self.server),
            title=f"{GKE_TITLE}{self.project}/{self.location}/{self.name}",
        )


@lru_cache(maxsize=8)
def gke_api(endpoint: str | None = None) -> GkeApi:
    """Return this process's client of the GKE API at *endpoint* (`HOST[:PORT]`); None: Google's own."""
    return GkeApi(endpoint)


class GkeApi:
    """Finds clusters, and remembers where they are. Threads can share it."""

    def __init__(self, endpoint: str | None = None) -> None:
        self._endpoint = endpoint
        self._found: dict[tuple[str, str, str], GkeCluster] = {}

    def cluster(self, project: str, location: str, name: str) -> GkeCluster:
        """Return a cluster in *location*, or else in the region of that zone.

        The GKE API is asked only for the first time. See `connect_to_gke` for its errors.
        """
        found = self._found.get((project, location, name))
        return found or self.look_up(project, location, name)

    def look_up(self, project: str, location: str, name: str, limit: float = _LIMIT) -> GkeCluster:
        """Return a cluster as the GKE API describes it now, within about *limit* seconds; see `cluster`."""
        end = time.monotonic() + limit
        with _google_errors():
            credentials = fresh_credentials(SCOPES, limit=limit)
        options = ClientOptions(api_endpoint=self._endpoint) if self._endpoint else None
        with container_v1.ClusterManagerClient(
            credentials=credentials, client_options=options
        ) as client:
            described = None
            # A cluster that is not in the zone may be in its region.
            for place in dict.fromkeys((location, region_of(location) or location)):
                path = f"projects/{project}/locations/{place}/clusters/{name}"
                with (
                    _translated(f"look up the cluster {name!r}", project),
                    suppress(exceptions.NotFound),
                ):
                    described = client.get_cluster(name=path, **_within(end))
                    break
            if described is None:
                self._found.pop((project, location, name), None)
                raise UnknownClusterError(
                    f"There is no GKE cluster {name!r} in {location} of the project {project!r}.",
                    hint=_others(client, project, name, end),
                )
        found = cluster_of(
            described, project, credentials, partial(self.look_up, project, location, name)
        )
        self._found[project, location, name] = self._found[project, found.location, name] = found
        return found


def cluster_of(
    described: Any, project: str, credentials: Any, look_up: Callable[[float], GkeCluster]
) -> GkeCluster:
    """Return what Kinetic uses of a `container_v1.Cluster`.

    Raises:
        ClusterUnreachableError: It has no address, for instance because it is being created.
    """
    server, ca = _address(described)
    if not server:
        status = container_v1.Cluster.Status(described.status).name
        raise ClusterUnreachableError(
            f"The GKE cluster {described.name!r} in {described.location} has no address; "
            f"its status is {status}. {described.status_message}".rstrip(),
            hint="Wait until it is RUNNING.",
        )
    addons = described.addons_config
    return GkeCluster(
        project=project,
        location=described.location,
        name=described.name,
        server=server,
        ca=ca,
        credentials=credentials,
        look_up=look_up,
        status=container_v1.Cluster.Status(described.status).name,
        version=described.current_master_version,
        network=described.network,
        subnetwork=described.subnetwork,
        autopilot=described.autopilot.enabled,
        pools=tuple(node_pool_of(each, len(described.locations)) for each in described.node_pools),
        autoprovisioning=described.autopilot.enabled
        or described.autoscaling.enable_node_autoprovisioning,
        compute_classes=described.autoscaling.default_compute_class_config.enabled,
        fuse=described.autopilot.enabled or addons.gcs_fuse_csi_driver_config.enabled,
    )


def _address(described: Any) -> tuple[str, str | None]:
    """Return the URL of the API server and its CA certificates; ("", None) if it has no address.

    The IP endpoint is preferred, unless only some networks may reach it and all may reach the DNS endpoint.
    https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation
    """
    endpoints = described.control_plane_endpoints_config
    dns, ip = endpoints.dns_endpoint_config, endpoints.ip_endpoints_config
    address, ca = str(described.endpoint), str(described.master_auth.cluster_ca_certificate)
    private = described.private_cluster_config.enable_private_endpoint or (
        "ip_endpoints_config" in endpoints and not ip.enable_public_endpoint
    )
    limited = (
        ip.authorized_networks_config.enabled or described.master_authorized_networks_config.enabled
    )
    if dns.endpoint and dns.allow_external_traffic and (private or limited or not address):
        return f"https://{dns.endpoint}", None
    if not address or not ca:
        return "", None
    if address.startswith("["):
        address = address if "]:" in address else f"{address}:443"
    elif address.count(":") != 1:  # Otherwise it has a port.
        address = f"[{address}]:443" if ":" in address else f"{address}:443"
    return f"https://{address}", b64decode(ca).decode("ascii")


def node_pool_of(pool: Any, zones: int = 1) -> NodePool:
    """Return what Kinetic uses of a `container_v1.NodePool` of a cluster in so many *zones*."""
    config, scaling = pool.config, pool.autoscaling
    most, least, status = None, 0, pool.status.name
    if scaling.enabled:
        # Numbers are of each zone, except the total.
        zones = len(pool.locations) or zones or 1
        most = scaling.total_max_node_count or scaling.max_node_count * zones
        least = scaling.total_min_node_count or scaling.min_node_count * zones
    made_for = config.resource_labels.get(MADE_FOR, "")
    if made_for:
        made_for += ":spot" * config.spot + ":flex-start" * config.flex_start
        for name in config.reservation_affinity.values:
            named = name.removeprefix("projects/").replace("/reservations/", "/")
            made_for += f":reservation={named}"
    return NodePool(
        name=pool.name,
        machine_type=config.machine_type,
        tpu_topology=pool.placement_policy.tpu_topology,
        placement_policy=pool.placement_policy.policy_name,
        accelerators={
            each.accelerator_type: int(each.accelerator_count) for each in config.accelerators
        },
        spot=config.spot,
        max_nodes=most,
        taints=tuple(
            (taint.key, taint.value, _TAINT_EFFECTS.get(taint.effect.name, taint.effect.name))
            for taint in config.taints
        ),
        made_for=made_for,
        min_nodes=least,
        problem=f"{status} {pool.status_message}".strip() if status in _FAILED else "",
    )


def _within(end: float) -> dict[str, Any]:
    """Return the options of a call of Google's client that ends at *end*, or a little later."""
    left = min(max(end - time.monotonic(), 0.5), _TIMEOUT)
    passing = if_exception_type(exceptions.ServiceUnavailable, exceptions.DeadlineExceeded)
    return {"timeout": left, "retry": Retry(predicate=passing, initial=0.1, timeout=left)}


def _others(client: Any, project: str, name: str, end: float) -> str:
    """Return which clusters the project has, those with a similar name first."""
    try:
        with _translated("list the clusters", project):
            listed = client.list_clusters(parent=f"projects/{project}/locations/-", **_within(end))
    except (ClusterError, InvalidRequestError):
        return "Check its name, its zone or region, and the project."
    found = [(str(each.name), str(each.location)) for each in listed.clusters]
    elsewhere = sorted(place for each, place in found if each == name)
    if elsewhere:
        return (
            f"A cluster of that name is in {' and in '.join(elsewhere)}: set the zone to that, for instance "
            f"with KINETIC_ZONE={elsewhere[0]}."
        )
    if not found:
        return "The project has no clusters. Make one with: kinetic up. Or name another project."
    named = ", ".join(f"{each!r} in {place}" for each, place in sorted(found)[:_MOST_NAMED])
    return f"The project has these clusters: {named}{', …' * (len(found) > _MOST_NAMED)}."


@contextmanager
def _translated(verb: str, project: str) -> Iterator[None]:
    """Translate the failures of Google's client to Kinetic's errors."""
    what = f"Could not {verb} in the project {project!r}"
    try:
        with _google_errors():
            yield
    except exceptions.Unauthenticated as error:
        raise NotAuthenticatedError(
            f"{what}: {_message(error)}.", hint=f"Log in with: {LOGIN}"
        ) from error
    except exceptions.PermissionDenied as error:
        text = f"{what}: {_message(error)}."
        if error.reason == "SERVICE_DISABLED" or "has not been used in project" in text:
            enable = f"gcloud services enable container.googleapis.com --project={project}"
            raise ServiceDisabledError(text, hint=f"Enable the GKE API: {enable}") from error
        refused = NotPermittedError(
            text,
            hint=f"You need the role {VIEWER} in the project {project!r} to find its clusters, and "
            "roles/container.developer or a role of the namespace to run jobs. Ask the project's "
            "administrator; and check that the project's name is right.",
        )
        needed: Mapping[str, str] = error.metadata or {}
        refused.verb, refused.resource = "get", needed.get("permission") or "container.clusters.get"
        raise refused from error
    except exceptions.InvalidArgument as error:
        raise InvalidRequestError(
            f"{what}: {_message(error)}.",
            hint="Check the project, the zone and the cluster's name.",
        ) from error
    except (exceptions.GoogleAPICallError, exceptions.RetryError) as error:
        raise ClusterUnreachableError(
            f"{what}: the GKE API did not give a usable response: {_message(error)}.",
            hint="Check the network, a VPN or proxy. Try again later.",
        ) from error


def _message(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, GoogleAuthError) else error
    text = getattr(cause, "message", None) or str(cause)
    return " ".join(str(text).split())[:500].rstrip(".")


def _google_errors() -> AbstractContextManager[None]:
    """Translate the failures of google-auth to Kinetic's errors."""
    return google_errors(NotAuthenticatedError, ClusterUnreachableError)
