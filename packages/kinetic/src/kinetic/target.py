"""`Target`: where on a cluster a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic_payload.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinetic.settings.settings import Settings
    from kinetic_payload.records.job import JobRecord


@frozen(kw_only=True)
class Target:
    """Where on a cluster a job runs; the local backend only records it."""

    project: str | None = None
    zone: str = ""
    cluster: str = ""
    namespace: str = ""
    kube_context: str | None = None
    """A context of the user's kubeconfig; None means that the cluster is found by its name."""

    @property
    def named(self) -> bool:
        """Whether it names a cluster; otherwise the cluster is that of the pod in which this process runs."""
        return self.project is not None or self.kube_context is not None

    def is_same_place(self, other: Target) -> bool:
        """Return whether jobs in *other* are in the same namespace of the same cluster, by their names."""
        if (self.kube_context, self.namespace) != (other.kube_context, other.namespace):
            return False
        # With a context, the other names say nothing: they may be defaults.
        places = [(each.project, each.zone, each.cluster) for each in (self, other)]
        return self.kube_context is not None or places[0] == places[1]

    @classmethod
    def of(cls, record: JobRecord) -> Target:
        """Return the target of the job of *record*."""
        return cls(
            project=record.project,
            zone=record.zone,
            cluster=record.cluster_name,
            namespace=record.namespace,
            kube_context=record.kube_context,
        )

    @classmethod
    def in_settings(cls, settings: Settings) -> Target:
        """Return the target that *settings* name."""
        return cls(
            project=settings.project.value,
            zone=settings.zone.value,
            cluster=settings.cluster.value,
            namespace=settings.namespace.value,
            kube_context=settings.kube_context.value,
        )


def is_in_pod(environment: Mapping[str, str]) -> bool:
    """Return whether *environment* is that of a pod, whose own cluster can be used."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST"))
