"""Kinds of objects that Kinetic uses, with their paths on an API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class ResourceKind:
    """A kind of object."""

    kind: str
    api: str
    """`apiVersion`, such as `batch/v1`."""
    plural: str
    """The name in paths and roles."""
    namespaced: bool = True

    @property
    def root(self) -> str:
        """The first part of the paths of its objects."""
        return f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"

    @property
    def in_roles(self) -> str:
        """The resource with its group, as a role names it: `jobs.batch`."""
        group, slash, _ = self.api.partition("/")
        return f"{self.plural}.{group}" if slash else self.plural


_KINDS: Final = {
    each.kind: each
    for each in (
        ResourceKind("ComputeClass", "cloud.google.com/v1", "computeclasses", namespaced=False),
        ResourceKind("ConfigMap", "v1", "configmaps"),
        ResourceKind("CSIDriver", "storage.k8s.io/v1", "csidrivers", namespaced=False),
        ResourceKind("Event", "v1", "events"),
        ResourceKind("Job", "batch/v1", "jobs"),
        ResourceKind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets"),
        ResourceKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
        ResourceKind("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues"),
        ResourceKind("Namespace", "v1", "namespaces", namespaced=False),
        ResourceKind("Node", "v1", "nodes", namespaced=False),
        ResourceKind("Pod", "v1", "pods"),
        ResourceKind("Secret", "v1", "secrets"),
        ResourceKind("Service", "v1", "services"),
        ResourceKind("ServiceAccount", "v1", "serviceaccounts"),
        ResourceKind("Workload", "kueue.x-k8s.io/v1beta2", "workloads"),
    )
}


def kind_of(name: str) -> ResourceKind:
    """Return the kind of that name, such as `Job`.

    Raises:
        KeyError: Kinetic does not use such objects.
    """
    return _KINDS[name]
