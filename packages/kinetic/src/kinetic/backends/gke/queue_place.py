"""The place of a job in a queue of Kueue."""

from __future__ import annotations

from collections.abc import Sequence

from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.errors import KindNotServedError, NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.queue import QUEUE, QueuePlace, place_of
from kinetic_k8s.reading.workloads import WorkloadView


def queue_place(
    cluster: Cluster, workload: Manifest, pods: Sequence[Manifest]
) -> QueuePlace | None:
    """Return the place of a job in its queue; None if it is in none, or has left it, or that may not be read."""
    seen = WorkloadView(workload)
    if QUEUE not in seen.labels or not seen.suspended or pods:
        return None
    cluster = with_short_timeout(cluster)
    try:
        workloads = cluster.list("Workload")
    except (KindNotServedError, NotPermittedError):
        return None
    try:
        queues = cluster.list("LocalQueue")
    except NotPermittedError:
        queues = []  # Then only the position is unknown.
    return place_of(workload, workloads, local_queues=queues)
