"""Node pools of GKE, each for jobs on one accelerator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from google.cloud import container_v1

from kinetic.provisioning.google.cloud import Cloud
from kinetic.provisioning.google.clusters import STATES, ClustersEdge
from kinetic.provisioning.plan import Actual, Resource
from kinetic_k8s.accelerators.types import Gpu, Tpu
from kinetic_k8s.cluster.gke import MADE_FOR, gke_api, node_pool_of
from kinetic_k8s.manifests.compute_class import parse_priority
from kinetic_k8s.manifests.placement import SPOT
from kinetic_payload.http.google import CLOUD_PLATFORM

_HYPERDISK: Final = ("ct6e-", "tpu7x-", "a3-ultra", "a4-", "a4x-", "g4-")
"""The machines that take no other boot disk: https://cloud.google.com/compute/docs/disks/hyperdisks"""


class NodePoolsEdge(ClustersEdge):
    """Makes node pools. A resource is named `LOCATION/CLUSTER/POOL`."""

    fixed = frozenset({"machines"})

    def __init__(self, cloud: Cloud, zone: str = "") -> None:
        """Take the project, and the zone of new machines."""
        super().__init__(cloud)
        self._zone = zone

    def read(self, resource: Resource) -> Actual | None:
        """Return the node pool."""
        found = self._get(resource)
        if found is None:
            return None
        pool = node_pool_of(found)
        return Actual(
            settings={
                "machines": pool.made_for,
                "min_nodes": pool.min_nodes,
                "max_nodes": pool.max_nodes,
            },
            ours=bool(pool.made_for),
            state=STATES.get(found.status.name, "ready"),
            detail=f"{found.status.name} {found.status_message}".strip(),
        )

    def create(self, resource: Resource) -> None:
        """Make the node pool, once nothing else is being done with its cluster."""
        pool = self._node_pool(resource, self._settled(resource))
        parent, _, _ = self._path(resource).partition("/nodePools/")
        self._run("create", resource, self._client.create_node_pool, parent=parent, node_pool=pool)
        self.wait(resource)

    def change(self, resource: Resource) -> None:
        """Change how many machines there are."""
        self._settled(resource)
        self._run(
            "change",
            resource,
            self._client.set_node_pool_autoscaling,
            name=self._path(resource),
            autoscaling=_scaling(resource),
        )
        self.wait(resource)

    def delete(self, resource: Resource) -> None:
        """Delete the node pool with its machines."""
        self._settled(resource)
        self._run("delete", resource, self._client.delete_node_pool, name=self._path(resource))
        self.wait(resource)

    def _settled(self, resource: Resource) -> Any:
        """Return the cluster once GKE does nothing else with it."""
        clusters = ClustersEdge(self._cloud)
        cluster = replace(resource, kind="cluster", name=resource.name.rpartition("/")[0])
        clusters.wait(cluster)
        return clusters._get(cluster)  # noqa: SLF001

    def _node_pool(self, resource: Resource, cluster: Any) -> container_v1.NodePool:
        priority = parse_priority(resource.settings["machines"])
        accelerator = priority.accelerator
        assert isinstance(accelerator, Gpu | Tpu)
        machine = accelerator.machine_type
        # Its other machines may pull images already.
        accounts = [each.config.service_account for each in cluster.node_pools]
        config: dict[str, Any] = {
            "machine_type": machine,
            "disk_type": "hyperdisk-balanced" if machine.startswith(_HYPERDISK) else "pd-balanced",
            "service_account": next(iter(accounts), ""),
            "oauth_scopes": [CLOUD_PLATFORM],
            "resource_labels": {MADE_FOR: accelerator.slug},
            "spot": accelerator.spot,
            "flex_start": priority.flex_start,
        }
        if cluster.workload_identity_config.workload_pool:
            config["workload_metadata_config"] = {"mode": "GKE_METADATA"}
        if isinstance(accelerator, Gpu):
            driver = {"gpu_driver_version": "DEFAULT"}
            config["accelerators"] = [
                {
                    "accelerator_type": accelerator.label,
                    "accelerator_count": accelerator.count,
                    "gpu_driver_installation_config": driver,
                }
            ]
        if accelerator.spot:  # GKE sets the label only.
            config["taints"] = [{"key": SPOT, "value": "true", "effect": "NO_SCHEDULE"}]
        if priority.flex_start:
            config["reservation_affinity"] = {"consume_reservation_type": "NO_RESERVATION"}
        if priority.reservation is not None:
            project, slash, name = priority.reservation.rpartition("/")
            config["reservation_affinity"] = {
                "consume_reservation_type": "SPECIFIC_RESERVATION",
                "key": "compute.googleapis.com/reservation-name",
                "values": [f"projects/{project}/reservations/{name}" if slash else name],
            }
        fields: dict[str, Any] = {
            "name": resource.name.rpartition("/")[2],
            "initial_node_count": resource.settings["min_nodes"],
            "locations": [self._zone],
            "config": config,
            "autoscaling": _scaling(resource),
            # GKE repairs no machines that are lent.
            "management": {"auto_upgrade": True, "auto_repair": not priority.flex_start},
        }
        if accelerator.multi_host:
            assert isinstance(accelerator, Tpu)
            fields["placement_policy"] = {"type_": "COMPACT", "tpu_topology": accelerator.topology}
        return container_v1.NodePool(fields)

    def _run(self, verb: str, resource: Resource, call: Callable[..., Any], **request: Any) -> None:
        try:
            super()._run(verb, resource, call, **request)
        finally:
            gke_api.cache_clear()  # It remembers clusters with their node pools.

    def _get(self, resource: Resource) -> Any:
        path = self._path(resource)
        return self._cloud.ask(f"read the {resource.id}", self._client.get_node_pool, name=path)

    def _path(self, resource: Resource) -> str:
        cluster, _, name = super()._path(resource).rpartition("/")
        return f"{cluster}/nodePools/{name}"


def _scaling(resource: Resource) -> dict[str, Any]:
    """Render the limits of a pool, all of whose machines are in one zone."""
    wanted = resource.settings
    return {
        "enabled": True,
        "min_node_count": wanted["min_nodes"],
        "max_node_count": wanted["max_nodes"],
        # The machines of a queue come from wherever they are.
        "location_policy": "ANY" if ":flex-start" in wanted["machines"] else "BALANCED",
    }
