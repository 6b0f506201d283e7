"""Reads the place of a job in a queue of Kueue, as far as the user may read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinetic_k8s.errors import NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.reading.queue import QueuePlace, is_queued, place_of

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer


class Queues:
    """The queues of one namespace, as far as the user may read them. Threads can share it.

    What the user may not read is asked for only once: a wait looks again and again.
    """

    def __init__(self) -> None:
        self._scopes: tuple[bool, ...] = (True, False)
        """Whether to list the objects of all namespaces, best first; without what the server has forbidden."""

    def place(self, cluster: ApiServer, workload: Manifest) -> QueuePlace | None:
        """Return the place of a job in its queue, with at most two lists, unless one is forbidden.

        None if the job names no queue, the cluster does not serve Kueue's `v1beta2`, or the user may not read
        its objects. The position is exact only if the user may read those of all namespaces.
        """
        if not is_queued(workload) or not cluster.serves("Workload"):
            return None
        for everywhere in self._scopes:
            try:
                workloads = cluster.list("Workload", everywhere=everywhere)
                place = place_of(workload, workloads)
                if place is None or place.admitted:
                    return place  # LocalQueues would not change it.
                queues = cluster.list("LocalQueue", everywhere=everywhere)
                return place_of(workload, workloads, local_queues=queues, complete=everywhere)
            except NotPermittedError:
                self._scopes = tuple(each for each in self._scopes if each is not everywhere)
        return None
