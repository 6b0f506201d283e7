"""GKE: clusters, their node pools, and their operations."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
from google.cloud import container_v1 as gke
from google.rpc import status_pb2

from kinetic_servers.google.apis import Rpcs, rpcs
from kinetic_servers.google.networks import firewalls_of_cluster
from kinetic_servers.google.places import MACHINES, REGIONS, ZONES, check_labels, parts_of
from kinetic_servers.google.state import (
    ApiError,
    Operation,
    Project,
    State,
    invalid,
    new_name,
    not_found,
    taken,
)

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_VERSION: Final = "1.34.1-gke.2037000"
_STATUS: Final[Any] = gke.Cluster.Status
_POOL_STATUS: Final[Any] = gke.NodePool.Status


class Clusters:
    """`google.container.v1.ClusterManager`."""

    api = "container"

    def __init__(self, state: State, api_server: Callable[[Any], tuple[str, str]]) -> None:
        self._state = state
        self._api_server = api_server
        may, operation = "container.clusters", gke.Operation
        self.services: Mapping[str, Rpcs] = {
            "google.container.v1.ClusterManager": rpcs(
                (f"{may}.create", gke.CreateClusterRequest, operation, self._create),
                (f"{may}.update", gke.CreateNodePoolRequest, operation, self._create_pool),
                (f"{may}.delete", gke.DeleteClusterRequest, operation, self._delete),
                (f"{may}.update", gke.DeleteNodePoolRequest, operation, self._delete_pool),
                (f"{may}.update", gke.SetNodePoolAutoscalingRequest, operation, self._scale_pool),
                (f"{may}.update", gke.UpdateClusterRequest, operation, self._update),
                (f"{may}.get", gke.GetClusterRequest, gke.Cluster, self._get),
                (f"{may}.get", gke.GetNodePoolRequest, gke.NodePool, self._get_pool),
                (f"{may}.list", gke.ListClustersRequest, gke.ListClustersResponse, self._list),
                ("container.operations.get", gke.GetOperationRequest, operation, self._operation),
            )
        }

    # --- Reading

    def _get(self, request: Any) -> Any:
        key, found = self._cluster(request.name)
        answer = gke.Cluster(found)
        self._state.look(key)
        return answer

    def _list(self, request: Any) -> Any:
        project, location = self._place(request.parent)
        prefix = f"{project.id}/container/clusters/"
        found = [
            (key, gke.Cluster(each))
            for key, each in sorted(self._state.existing.items())
            if key.startswith(prefix) and location in ("-", each.location)
        ]
        for key, _ in found:
            self._state.look(key)
        return gke.ListClustersResponse(clusters=[each for _, each in found])

    def _operation(self, request: Any) -> Any:
        project, location = self._place(request.name.partition("/operations/")[0])
        name = request.name.rpartition("/")[2]
        found = self._state.operations.get(name)
        if found is None or found.details.get("place") != (project.id, location):
            raise not_found(f"Not found: {request.name}.")
        found.poll()
        return self._shown(found)

    def _shown(self, operation: Operation) -> Any:
        """Return an operation as the API shows it."""
        project, location = operation.details["place"]
        statuses = gke.Operation.Status
        made = gke.Operation(
            name=operation.name,
            location=location,
            status=statuses.DONE if operation.done else statuses.RUNNING,
            target_link=f"https://container.googleapis.com/v1/projects/{project}/locations/{location}/"
            f"{operation.details['link']}",
        )
        if operation.done and operation.error:
            made.error = status_pb2.Status(code=operation.code.value[0], message=operation.error)
        return made

    # --- Clusters

    def _create(self, request: Any) -> Any:
        project, location = self._place(request.parent)
        made = gke.Cluster(request.cluster)
        key = f"{project.id}/container/clusters/{location}/{made.name}"
        if len(made.name) > 40 or not _NAME.fullmatch(made.name):
            raise invalid(
                f'Invalid value for field "cluster.name": "{made.name}": it must match {_NAME.pattern} and have '
                "at most 40 characters."
            )
        if key in self._state.existing:
            raise taken(
                f"Already exists: projects/{project.id}/locations/{location}/clusters/{made.name}."
            )
        self._check(made, project, location)
        self._fill(made, project, location)
        self._state.existing[key] = made
        firewalls = firewalls_of_cluster(made.name, project.id, made.network)
        self._state.existing.update(firewalls)

        def finish() -> None:
            _set(made, _STATUS.RUNNING)
            url, pem = self._api_server(made)
            made.endpoint = url.removeprefix("https://")
            made.master_auth.cluster_ca_certificate = b64encode(pem.encode()).decode()
            project.has_pool |= bool(made.workload_identity_config.workload_pool)

        def give_up(error: str) -> None:
            _set(made, _STATUS.ERROR, error)

        return self._start("CreateCluster", key, finish, give_up)

    def _check(self, made: Any, project: Project, location: str) -> None:
        check_labels(made.resource_labels)
        pool = made.workload_identity_config.workload_pool
        if pool not in ("", f"{project.id}.svc.id.goog"):
            raise invalid(
                f"Currently, the only supported workload pool is {project.id}.svc.id.goog; got {pool}."
            )
        if made.autopilot.enabled:
            if location in ZONES:
                raise invalid("Autopilot clusters must be regional clusters.")
            if made.node_pools:
                raise invalid("Node pools cannot be specified for an Autopilot cluster.")
        elif not made.node_pools:
            raise invalid("Specify either initial_node_count or node_pools.")
        self._check_network(made, project, ZONES.get(location, location))
        defaults = made.autoscaling.autoprovisioning_node_pool_defaults
        for each in (defaults, *(pool.config for pool in made.node_pools)):
            self._check_account(each.service_account or "default")

    def _check_network(self, made: Any, project: Project, region: str) -> None:
        name, subnetwork = (each.rpartition("/")[2] for each in (made.network, made.subnetwork))
        network = self._state.existing.get(f"{project.id}/compute/networks/{name}")
        if network is None:
            raise invalid(f'Project "{project.id}" has no network named "{name}".')
        found = self._state.existing.get(f"{project.id}/compute/subnetworks/{region}/{subnetwork}")
        if found is None or found.data["network"] != network.link:
            raise invalid(
                f'Subnetwork "{subnetwork}" of network "{name}" was not found in region "{region}".'
            )
        if network.is_busy(self._state) or found.is_busy(self._state):
            raise invalid(f'The network "{name}" is not ready.')
        made.network, made.subnetwork = name, subnetwork

    def _check_account(self, email: str) -> None:
        if not self._state.sees_account(email):
            raise invalid(f'Service account "{email}" does not exist.')
        if "iam.serviceAccounts.actAs" in self._state.denied:
            raise invalid(
                f'The user does not have access to service account "{email}". Ask a project owner to grant you the '
                "iam.serviceAccountUser role on the service account."
            )

    def _fill(self, made: Any, project: Project, location: str) -> None:
        """Set what the service decides."""
        digest = hashlib.sha256(f"{project.id}/{location}/{made.name}".encode()).hexdigest()
        made.id, made.location = digest, location
        zones = [f"{location}-{each}" for each in REGIONS.get(location, "")]
        made.locations = made.locations or zones or [location]
        made.current_master_version = _VERSION
        region = ZONES.get(location, location)
        dns = f"gke-{digest[:32]}-{project.number}.{region}.gke.goog"
        made.control_plane_endpoints_config.dns_endpoint_config.endpoint = dns
        if made.autopilot.enabled:
            made.workload_identity_config.workload_pool = f"{project.id}.svc.id.goog"
            made.addons_config.gcs_fuse_csi_driver_config.enabled = True
        for each in made.node_pools:
            each.status = _POOL_STATUS.RUNNING
        _set(made, _STATUS.PROVISIONING)

    def _update(self, request: Any) -> Any:
        key, found = self._idle(request.name)
        update = request.update
        given = [field.name for field, _ in type(update).pb(update).ListFields()]
        if len(given) != 1:
            raise invalid(f"Must specify exactly one update; got {', '.join(given) or 'none'}.")
        changed = gke.Cluster(found)
        value, old = getattr(update, given[0]), getattr(changed, given[0].removeprefix("desired_"))
        type(old).pb(old).MergeFrom(type(value).pb(value))
        _set(found, _STATUS.RECONCILING)

        def finish() -> None:
            _set(changed, _STATUS.RUNNING)
            self._state.existing[key] = changed
            self._project_of(key).has_pool |= bool(changed.workload_identity_config.workload_pool)

        return self._start("UpdateCluster", key, finish, lambda _: _set(found, _STATUS.RUNNING))

    def _delete(self, request: Any) -> Any:
        key, found = self._idle(request.name)
        _set(found, _STATUS.STOPPING)

        def finish() -> None:
            self._state.existing.pop(key, None)
            # Its firewall rules stay, as those of GKE do at times: who deletes the network has to find them.

        return self._start("DeleteCluster", key, finish, lambda e: _set(found, _STATUS.ERROR, e))

    # --- Node pools

    def _create_pool(self, request: Any) -> Any:
        key, found = self._idle(request.parent)
        pool = gke.NodePool(request.node_pool)
        if found.autopilot.enabled:
            raise invalid("Autopilot clusters do not support mutating node pools.")
        if len(pool.name) > 40 or not _NAME.fullmatch(pool.name):
            raise invalid(f'Invalid value for field "node_pool.name": "{pool.name}".')
        if any(each.name == pool.name for each in found.node_pools):
            raise taken(f"Already exists: {request.parent}/nodePools/{pool.name}.")
        self._check_account(pool.config.service_account or "default")
        self._check_pool(pool, found)
        pool.status = _POOL_STATUS.PROVISIONING
        found.node_pools.append(pool)
        _set(found, _STATUS.RECONCILING)

        def end(status: Any, text: str = "") -> None:
            for each in found.node_pools:
                if each.name == pool.name:
                    each.status, each.status_message = status, text
            _set(found, _STATUS.RUNNING)

        return self._start(
            "CreateNodePool",
            key,
            lambda: end(_POOL_STATUS.RUNNING),
            lambda error: end(_POOL_STATUS.ERROR, error),
            pool.name,
        )

    def _check_pool(self, pool: Any, cluster: Any) -> None:
        config, scaling = pool.config, pool.autoscaling
        check_labels(config.resource_labels)
        region = ZONES.get(cluster.location, cluster.location)
        for zone in pool.locations:
            if ZONES.get(zone) != region:
                raise invalid(f'Location "{zone}" is not in region "{region}".')
            if zone not in MACHINES.get(config.machine_type, (zone,)):
                raise invalid(
                    f'Machine type "{config.machine_type}" does not exist in zone "{zone}".'
                )
        _check_scaling(scaling)
        if scaling.enabled and scaling.max_node_count < pool.initial_node_count:
            raise invalid("initial_node_count must be between the limits of autoscaling.")
        reserved = config.reservation_affinity.consume_reservation_type.name
        if reserved == "SPECIFIC_RESERVATION" and (config.spot or config.flex_start):
            raise invalid("Spot and flex-start nodes cannot use a reservation.")
        if config.flex_start and (pool.management.auto_repair or reserved != "NO_RESERVATION"):
            raise invalid("Flex-start needs auto_repair=false and reservation affinity none.")
        placement = pool.placement_policy
        multi_host = placement.tpu_topology.count("x") and placement.type_.name == "COMPACT"
        if placement.tpu_topology and (not multi_host or len(pool.locations) != 1):
            raise invalid("A TPU topology needs compact placement in exactly one zone.")

    def _scale_pool(self, request: Any) -> Any:
        key, _ = self._idle(request.name.partition("/nodePools/")[0])
        _, pool = self._pool(request)
        _check_scaling(request.autoscaling)

        def finish() -> None:
            pool.autoscaling = request.autoscaling

        return self._start("SetNodePoolAutoscaling", key, finish, lambda _: None, pool.name)

    def _delete_pool(self, request: Any) -> Any:
        key, cluster = self._idle(request.name.partition("/nodePools/")[0])
        _, pool = self._pool(request)
        pool.status = _POOL_STATUS.STOPPING

        def finish() -> None:
            cluster.node_pools = [each for each in cluster.node_pools if each.name != pool.name]

        return self._start("DeleteNodePool", key, finish, lambda _: None, pool.name)

    def _get_pool(self, request: Any) -> Any:
        answer = gke.NodePool(self._pool(request)[1])
        self._state.look(self._cluster(request.name.partition("/nodePools/")[0])[0])
        return answer

    def _pool(self, request: Any) -> tuple[Any, Any]:
        place, _, name = request.name.partition("/nodePools/")
        _, cluster = self._cluster(place)
        for each in cluster.node_pools:
            if each.name == name:
                return cluster, each
        raise not_found(f"Not found: {request.name}.")

    # --- Both

    def _start(
        self,
        method: str,
        key: str,
        finish: Callable[[], None],
        give_up: Callable[[str], None],
        pool: str = "",
    ) -> Any:
        self._state.mark()
        project, _, _, location, cluster = key.split("/")
        link = f"clusters/{cluster}" + (f"/nodePools/{pool}" if pool else "")
        place = (project, location)
        made = self._state.start(method, new_name(), key, finish, give_up, place=place, link=link)
        return self._shown(made)

    def _idle(self, name: str) -> tuple[str, Any]:
        """Return a cluster that may be changed now."""
        key, found = self._cluster(name)
        running = self._state.running(key)
        if running is not None:
            running.poll()  # For a client that only tries again.
            raise ApiError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"Operation {running.name} is currently changing cluster {found.name}. Please wait and try again "
                "once it is done.",
            )
        return key, found

    def _cluster(self, name: str) -> tuple[str, Any]:
        parts = parts_of(name, "projects", "locations", "clusters")
        project, location = self._place(
            f"projects/{parts['projects']}/locations/{parts['locations']}"
        )
        key = f"{project.id}/container/clusters/{location}/{parts['clusters']}"
        if key not in self._state.existing:
            raise not_found(f"Not found: {name}.")
        return key, self._state.existing[key]

    def _place(self, name: str) -> tuple[Project, str]:
        parts = parts_of(name, "projects", "locations")
        project, location = self._state.project(parts["projects"]), parts["locations"]
        assert project is not None, "`State.admit` has found it"
        if location not in {"-", *REGIONS, *ZONES}:
            raise invalid(f'Location "{location}" does not exist.')
        return project, location

    def _project_of(self, key: str) -> Project:
        return self._state.projects[key.partition("/")[0]]


def _check_scaling(scaling: Any) -> None:
    if scaling.enabled and not 0 <= scaling.min_node_count <= scaling.max_node_count != 0:
        raise invalid("min_node_count must be at most max_node_count, which is at least 1.")


def _set(cluster: Any, status: Any, text: str = "") -> None:
    cluster.status, cluster.status_message = status, text
