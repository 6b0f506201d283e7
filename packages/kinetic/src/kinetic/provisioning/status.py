"""A cluster at a glance: `kinetic status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinetic.user_warnings import warn_caller
from kinetic_k8s.errors import NotPermittedError
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.settings.settings import Settings
    from kinetic_k8s.cluster.gke import GkeCluster
    from kinetic_k8s.manifests import Manifest
    from kinetic_k8s.reading.pools import PoolStatus
    from kinetic_k8s.reading.workloads import WorkloadView


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """What a cluster has, and what it does."""

    identity: str
    """The cluster, for messages."""
    gke: GkeCluster | None
    """What GKE knows about it; None: it was found by a context of the kubeconfig."""
    jobs: Mapping[str, int]
    """How many jobs there are, by state: PENDING, RUNNING, SUCCEEDED, FAILED."""
    pools: tuple[PoolStatus, ...]
    jobset: str | None
    """The version of JobSet that Kinetic installed; empty: it is not Kinetic's; None: the user may not look."""

    @property
    def idle(self) -> tuple[PoolStatus, ...]:
        """The pools that have machines, which are billed, and no job."""
        return tuple(each for each in self.pools if each.nodes and not each.used_by)


def cluster_status(settings: Settings) -> ClusterStatus:
    """Return the status of the cluster that *settings* name. Nothing is changed.

    Raises:
        UnknownClusterError: There is no such cluster; the hint names those that exist.
        ClusterError: It cannot be reached.
    """
    from kinetic.backends.gke.checks import classes_in
    from kinetic.backends.gke.connect import find_cluster
    from kinetic.provisioning.pools import pools_in, workloads_in
    from kinetic_k8s.manifests.releases import JOBSET
    from kinetic_k8s.reading.workloads import WorkloadView

    cluster, gke = find_cluster(settings)

    def classes_or_none() -> list[Manifest] | None:
        try:
            return classes_in(cluster)
        except NotPermittedError as error:
            warn_caller(error.message)
            return None

    def jobset() -> str | None:
        with suppress(NotPermittedError):
            found = cluster.get("CustomResourceDefinition", JOBSET.definition, brief=True) or {}
            known = found.get("metadata", {}).get("annotations") or {}
            return str(known.get(JOBSET.installed, ""))
        return None

    looks: list[Callable[[], Any]] = [lambda: workloads_in(cluster), classes_or_none, jobset]
    workloads, classes, version = parallel_map(lambda look: look(), looks, threads=3)
    return ClusterStatus(
        identity=str(cluster.identity),
        gke=gke,
        jobs=dict(Counter(_state(WorkloadView(each)) for each in workloads or ())),
        pools=tuple(pools_in(cluster, gke, classes or [], workloads or [])),
        jobset=version,
    )


def _state(workload: WorkloadView) -> str:
    if workload.succeeded:
        return "SUCCEEDED"
    if workload.failure:
        return "FAILED"
    return "RUNNING" if workload.has_begun else "PENDING"
