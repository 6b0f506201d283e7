"""What is made in the cluster: add-ons, what jobs and their submitters may do, and pools."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kinetic.provisioning.edge import Edge
from kinetic.provisioning.plan import Actual, Resource, State
from kinetic.settings.settings import Setting, Settings
from kinetic_k8s.manifests.releases import ADDONS, JOBSET

if TYPE_CHECKING:
    from kinetic.provisioning.google.cloud import Cloud
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.manifests import Manifest

_RELEASES: Final = {each.name: each for each in (JOBSET, *ADDONS.values())}
_START: Final = 900.0
"""Seconds in which the controller of an add-on starts; Autopilot may have to make a machine for it."""


class Connection:
    """The cluster, connected to when it is first needed: it may not exist yet."""

    def __init__(self, settings: Settings, location: str) -> None:
        """Take the settings that name the cluster, and where it is."""
        self.settings = replace(
            settings, zone=Setting(location, "argument"), kube_context=Setting(None, "default")
        )
        self._connecting = threading.Lock()
        self._found: ApiServer | None = None

    @property
    def cluster(self) -> ApiServer:
        """The cluster."""
        from kinetic.backends.gke.connect import find_cluster

        with self._connecting:
            if self._found is None:
                self._found, _ = find_cluster(self.settings)
            return self._found


class InsideEdge(Edge):
    """What the edges to a cluster have in common. What is there goes with the cluster."""

    def __init__(self, cloud: Cloud, connection: Connection) -> None:
        """Take the project and the cluster."""
        super().__init__(cloud)
        self._connection = connection
        self.settings = connection.settings

    @property
    def cluster(self) -> ApiServer:
        """The cluster."""
        return self._connection.cluster

    def change(self, resource: Resource) -> None:
        """Give it what is wanted: the same as making it."""
        self.create(resource)


class AddonEdge(InsideEdge):
    """Installs an add-on such as JobSet, unless the cluster has it from somebody else."""

    def read(self, resource: Resource) -> Actual | None:
        """Return the version of the add-on; that of somebody else counts as the wanted one."""
        from kinetic_k8s.cluster.addons import installed_addon

        found = installed_addon(self.cluster, _RELEASES[resource.kind])
        if found is None:
            return None
        # Another one is not changed, and neither is a later one.
        replaced = found.ours and not found.newer
        version = found.version if replaced else resource.settings["version"]
        state: State = "changing" if found.problem else "ready"
        return Actual(
            settings={"version": version}, ours=found.ours, state=state, detail=found.problem
        )

    def create(self, resource: Resource) -> None:
        """Install it, and wait until its controller runs: without it none of its objects is accepted."""
        from kinetic_k8s.cluster.addons import install_addon

        install_addon(self.cluster, _RELEASES[resource.kind])
        found: Actual | None = None

        def is_ready() -> bool:
            nonlocal found
            found = self.read(resource)
            return found is not None and found.state == "ready"

        def why() -> str:
            seen = found.detail if found else "it is gone"
            return f"The controller of {resource.kind} does not run ({seen})"

        self._cloud.wait(is_ready, why, _START)

    def wait(self, resource: Resource) -> None:
        """Complete an installation that was interrupted, and wait until the controller runs."""
        self.create(resource)


class AccessEdge(InsideEdge):
    """Makes a namespace, the service account of its jobs and the role of their submitters."""

    def read(self, resource: Resource) -> Actual | None:
        """Return whether rules and subjects are those of this version; None if an object is missing."""
        namespace = resource.settings["namespace"]
        cluster = self.cluster.in_namespace(namespace)
        for wanted in self._objects(resource):
            found = cluster.get(wanted["kind"], wanted["metadata"]["name"])
            if found is None:
                return None
            if any(found.get(each) != wanted.get(each) for each in ("rules", "subjects")):
                return Actual(settings={**resource.settings, "rules": "other ones"})
        return Actual(settings=resource.settings)

    def create(self, resource: Resource) -> None:
        """Apply the objects."""
        namespace = resource.settings["namespace"]
        for wanted in self._objects(resource):
            self.cluster.in_namespace(namespace).apply(wanted)

    def _objects(self, resource: Resource) -> list[Manifest]:
        from kinetic_k8s.manifests.access import access_manifests

        return access_manifests(resource.settings["namespace"])


class UsersEdge(AccessEdge):
    """Gives somebody the roles of people who submit jobs in a namespace; others keep theirs."""

    def _objects(self, resource: Resource) -> list[Manifest]:
        from kinetic_k8s.manifests.access import user_bindings

        return user_bindings(resource.settings["namespace"], resource.settings["member"])


class PoolsEdge(InsideEdge):
    """Adds pools; those that exist are left as they are."""

    def read(self, resource: Resource) -> Actual | None:
        """Return whether the accelerator has a pool."""
        from kinetic.backends.gke.checks import classes_in
        from kinetic_k8s.manifests.compute_class import parse_priority, pool_of

        wanted = parse_priority(resource.name).accelerator
        pools = filter(None, map(pool_of, classes_in(self.cluster) or ()))
        return Actual() if any(pool.accelerator == wanted for pool in pools) else None

    def create(self, resource: Resource) -> None:
        """Add the pool."""
        from kinetic.provisioning.pools import add_pool

        if self.read(resource) is None:
            add_pool(self.settings, resource.name)


def inside_edges(cloud: Cloud, settings: Settings, location: str) -> dict[str, Edge]:
    """Return the edges to a cluster, by kind."""
    connection = Connection(settings, location)
    return {
        "access": AccessEdge(cloud, connection),
        "users": UsersEdge(cloud, connection),
        "pool": PoolsEdge(cloud, connection),
        **dict.fromkeys(_RELEASES, AddonEdge(cloud, connection)),
    }
