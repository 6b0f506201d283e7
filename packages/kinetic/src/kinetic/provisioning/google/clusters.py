"""Clusters of GKE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from google.api_core import exceptions
from google.cloud import container_v1

from kinetic.provisioning.desired import checked_region
from kinetic.provisioning.edge import MARK, Edge, Needs
from kinetic.provisioning.plan import Actual, Resource, State
from kinetic_k8s.accelerators.gpus import GPU_TYPES
from kinetic_k8s.accelerators.tpus import TPU_GENERATIONS
from kinetic_payload.http.google import CLOUD_PLATFORM

STATES: Final[dict[str, State]] = {
    "PROVISIONING": "changing",
    "RECONCILING": "changing",
    "STOPPING": "leaving",
    "ERROR": "failed",
}
"""Of clusters, and of node pools; every other status is `ready`."""
_CHANNEL: Final = container_v1.ReleaseChannel.Channel
_DONE: Final = container_v1.Operation.Status.DONE
_SYSTEM_MACHINE: Final = "e2-standard-4"
"""The machine of a Standard cluster on which Kubernetes' own pods, and JobSet, run."""


@dataclass(frozen=True)
class FoundCluster:
    """A cluster of a project."""

    name: str
    location: str
    status: str
    """In a word of GKE, such as RUNNING."""
    ours: bool
    """Whether `kinetic up` made it."""


class ClustersEdge(Edge):
    """Makes clusters. A resource is named `LOCATION/NAME`."""

    service = "container.googleapis.com"
    needs: ClassVar[Needs] = {
        "create": ("container.clusters.create", "iam.serviceAccounts.actAs"),
        "change": ("container.clusters.update",),
        "delete": ("container.clusters.delete",),
    }
    fixed = frozenset({"autopilot", "network", "subnetwork", "private_nodes", "account", "fuse"})

    def read(self, resource: Resource) -> Actual | None:
        """Return the cluster."""
        found = self._get(resource)
        if found is None:
            return None
        defaults = found.autoscaling.autoprovisioning_node_pool_defaults
        endpoints = found.control_plane_endpoints_config
        settings = {
            "autopilot": found.autopilot.enabled,
            "release_channel": _CHANNEL(found.release_channel.channel).name,
            "network": _last(found.network),
            "subnetwork": _last(found.subnetwork),
            "private_nodes": found.network_config.default_enable_private_nodes,
            "dns_endpoint": endpoints.dns_endpoint_config.allow_external_traffic,
            "workload_identity": bool(found.workload_identity_config.workload_pool),
            "fuse": found.autopilot.enabled
            or found.addons_config.gcs_fuse_csi_driver_config.enabled,
            "cost_allocation": found.cost_management_config.enabled,
            "account": defaults.service_account,
        }
        return Actual(
            settings=settings,
            ours=found.resource_labels.get(MARK) == found.name,
            state=STATES.get(found.status.name, "ready"),
            detail=f"{found.status.name} {found.status_message}".strip(),
        )

    def found(self) -> list[FoundCluster]:
        """Return the clusters of the project."""
        everywhere = f"projects/{self._cloud.project}/locations/-"
        answer = self._cloud.ask("list the clusters", self._client.list_clusters, parent=everywhere)
        return [
            FoundCluster(
                each.name,
                each.location,
                each.status.name,
                each.resource_labels.get(MARK) == each.name,
            )
            for each in (answer.clusters if answer else ())
        ]

    def create(self, resource: Resource) -> None:
        """Make the cluster; one that is being deleted goes first."""
        self.wait(resource)
        parent, _, _ = self._path(resource).partition("/clusters/")
        cluster = self._cluster(resource)
        self._run("create", resource, self._client.create_cluster, parent=parent, cluster=cluster)
        self.wait(resource)

    def change(self, resource: Resource) -> None:
        """Give the cluster the settings that are wanted, one update each: GKE accepts one at a time."""
        actual = self.read(resource)
        wanted, found = resource.settings, actual.settings if actual else {}
        for name, update in (
            ("release_channel", {"desired_release_channel": _channel(wanted)}),
            ("dns_endpoint", {"desired_control_plane_endpoints_config": _endpoints(wanted)}),
            ("cost_allocation", {"desired_cost_management_config": {"enabled": True}}),
            ("workload_identity", {"desired_workload_identity_config": self._identity()}),
        ):
            if wanted[name] == found.get(name):
                continue
            self._run(
                f"change {name} of",
                resource,
                self._client.update_cluster,
                name=self._path(resource),
                update=update,
            )

    def wait(self, resource: Resource) -> None:
        """Return once the cluster is neither being created, changed nor deleted."""

        found: Any = None

        def is_settled() -> bool:
            nonlocal found
            found = self._get(resource)
            return found is None or STATES.get(found.status.name) not in ("changing", "leaving")

        self._cloud.wait(is_settled, lambda: f"The {resource.id} is still {found.status.name}")

    def delete(self, resource: Resource) -> None:
        """Delete the cluster, once nothing else is being done with it."""
        self.wait(resource)
        self._run("delete", resource, self._client.delete_cluster, name=self._path(resource))
        self.wait(resource)

    def _cluster(self, resource: Resource) -> container_v1.Cluster:
        wanted, project = resource.settings, self._cloud.project
        region = checked_region(resource.name.partition("/")[0])
        defaults: dict[str, Any] = {
            "service_account": wanted["account"],
            "oauth_scopes": [CLOUD_PLATFORM],
        }
        fields: dict[str, Any] = {
            "name": resource.name.partition("/")[2],
            "resource_labels": {MARK: resource.name.partition("/")[2]},
            "release_channel": _channel(wanted),
            "network": f"projects/{project}/global/networks/{wanted['network']}",
            "subnetwork": f"projects/{project}/regions/{region}/subnetworks/{wanted['subnetwork']}",
            "network_config": {"default_enable_private_nodes": wanted["private_nodes"]},
            "control_plane_endpoints_config": _endpoints(wanted),
            "workload_identity_config": self._identity(),
            "cost_management_config": {"enabled": True},
            "ip_allocation_policy": {"use_ip_aliases": True},
            "autoscaling": {"autoprovisioning_node_pool_defaults": defaults},
        }
        if wanted["autopilot"]:
            fields["autopilot"] = {"enabled": True}
            return container_v1.Cluster(fields)
        fields["addons_config"] = {"gcs_fuse_csi_driver_config": {"enabled": True}}
        # A release channel takes no other value, and not always the lack of one.
        management = {"auto_upgrade": True, "auto_repair": True}
        defaults["management"] = management
        fields["autoscaling"] |= {
            "enable_node_autoprovisioning": True,
            "resource_limits": [
                {"resource_type": kind, "maximum": most} for kind, most in _limits().items()
            ],
        }
        config = {
            "machine_type": _SYSTEM_MACHINE,
            "service_account": defaults["service_account"],
            "oauth_scopes": defaults["oauth_scopes"],
            "workload_metadata_config": {"mode": "GKE_METADATA"},
        }
        fields["node_pools"] = [
            {
                "name": "system",
                "initial_node_count": 1,
                "config": config,
                "management": management,
            },
        ]
        return container_v1.Cluster(fields)

    def _identity(self) -> dict[str, str]:
        return {"workload_pool": f"{self._cloud.project}.svc.id.goog"}

    def _run(self, verb: str, resource: Resource, call: Callable[..., Any], **request: Any) -> None:
        """Begin a change, unless it has been made, and return once it has ended."""
        what = f"{verb} the {resource.id}"
        made = {"create": exceptions.AlreadyExists, "delete": exceptions.NotFound}.get(verb, ())
        latest: Any = self._cloud.change(what, call, made=made, **request)
        if latest is None:
            return
        place, _, _ = self._path(resource).partition("/clusters/")
        name = f"{place}/operations/{latest.name}"

        def is_done() -> bool:
            nonlocal latest
            if latest.status != _DONE:
                latest = self._cloud.ask(what, self._client.get_operation, name=name)
            return latest is None or latest.status == _DONE

        self._cloud.wait(is_done)
        if latest is not None and (latest.error.code or latest.error.message):
            text = latest.error.message.rstrip(".")
            raise self._cloud.failed(f"Could not {what}: {text}.", text)

    def _get(self, resource: Resource) -> Any:
        path = self._path(resource)
        return self._cloud.ask(f"read the {resource.id}", self._client.get_cluster, name=path)

    def _path(self, resource: Resource) -> str:
        location, _, name = resource.name.partition("/")
        return f"projects/{self._cloud.project}/locations/{location}/clusters/{name}"

    @property
    def _client(self) -> container_v1.ClusterManagerClient:
        return self._cloud.client("container", container_v1.ClusterManagerClient)


def _limits() -> dict[str, int]:
    """Return what GKE may create by itself in a Standard cluster, in cores, GB and devices; quotas limit it as well.

    https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-provisioning
    """
    devices = {each.label for each in GPU_TYPES} | {each.label for each in TPU_GENERATIONS}
    return {"cpu": 10_000, "memory": 100_000, **dict.fromkeys(sorted(devices), 10_000)}


def _channel(wanted: Any) -> dict[str, str]:
    return {"channel": wanted["release_channel"]}


def _endpoints(wanted: Any) -> dict[str, Any]:
    return {"dns_endpoint_config": {"allow_external_traffic": wanted["dns_endpoint"]}}


def _last(path: str) -> str:
    return path.rpartition("/")[2]
