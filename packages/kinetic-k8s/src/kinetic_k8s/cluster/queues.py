"""Reads the place of a job in a queue of Kueue, as far as the user may read it."""

from __future__ import annotations

from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.queue import QueuePlace, is_queued, place_of


def place_in_queue(cluster: Cluster, workload: Manifest) -> QueuePlace | None:
    """Return the place of a job in its queue.

    None if the job names no queue, the cluster does not serve Kueue's `v1beta2`, or the user may not read
    its objects. The position is exact only if the user may read those of all namespaces.
    """
    if not is_queued(workload) or not cluster.serves("Workload"):
        return None
    for everywhere in (True, False):
        try:
            return place_of(
                workload,
                cluster.list("Workload", everywhere=everywhere),
                local_queues=cluster.list("LocalQueue", everywhere=everywhere),
                complete=everywhere,
            )
        except NotPermittedError:
            continue
    return None
