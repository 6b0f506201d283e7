"""`Target`: where on a cluster a job runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_payload.records.job import JobRecord


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where on a cluster a job runs; the local backend only records it."""

    project: str | None = None
    zone: str = ""
    cluster: str = ""
    namespace: str = ""
    kube_context: str | None = None
    """A context of the user's kubeconfig; None means that the cluster is reached by its name."""

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
