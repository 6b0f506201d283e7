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


_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_KINDS: Final = {
    each.kind: each
    for each in (
        ResourceKind("ClusterRole", _RBAC, "clusterroles", namespaced=False),
        ResourceKind("ClusterRoleBinding", _RBAC, "clusterrolebindings", namespaced=False),
        ResourceKind("ComputeClass", "cloud.google.com/v1", "computeclasses", namespaced=False),
        ResourceKind("ConfigMap", "v1", "configmaps"),
        ResourceKind("CSIDriver", "storage.k8s.io/v1", "csidrivers", namespaced=False),
        ResourceKind(
            "CustomResourceDefinition",
            "apiextensions.k8s.io/v1",
            "customresourcedefinitions",
            namespaced=False,
        ),
        ResourceKind("Deployment", "apps/v1", "deployments"),
        ResourceKind("Event", "v1", "events"),
        ResourceKind("Job", "batch/v1", "jobs"),
        ResourceKind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets"),
        ResourceKind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
        ResourceKind("LocalQueue", "kueue.x-k8s.io/v1beta2", "localqueues"),
        ResourceKind(
            "MutatingWebhookConfiguration",
            _ADMISSION,
            "mutatingwebhookconfigurations",
            namespaced=False,
        ),
        ResourceKind("Namespace", "v1", "namespaces", namespaced=False),
        ResourceKind("Node", "v1", "nodes", namespaced=False),
        ResourceKind("Pod", "v1", "pods"),
        ResourceKind("Role", _RBAC, "roles"),
        ResourceKind("RoleBinding", _RBAC, "rolebindings"),
        ResourceKind("Secret", "v1", "secrets"),
        ResourceKind("Service", "v1", "services"),
        ResourceKind("ServiceAccount", "v1", "serviceaccounts"),
        ResourceKind(
            "ValidatingWebhookConfiguration",
            _ADMISSION,
            "validatingwebhookconfigurations",
            namespaced=False,
        ),
        ResourceKind("Workload", "kueue.x-k8s.io/v1beta2", "workloads"),
    )
}


def kind_of(name: str) -> ResourceKind:
    """Return the kind of that name, such as `Job`.

    Raises:
        KeyError: Kinetic does not use such objects.
    """
    return _KINDS[name]
