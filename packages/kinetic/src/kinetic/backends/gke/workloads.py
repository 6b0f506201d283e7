"""The workloads of all jobs in a namespace, of every kind."""

from __future__ import annotations

import logging

from kinetic.backends.gke.observation import is_part
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.errors import KindNotServedError, NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import of_jobs
from kinetic_k8s.manifests.workload import KINDS

log = logging.getLogger("kinetic")


class Workloads:
    """Lists the workloads in one namespace of *cluster*."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unserved: set[str] = set()
        """Kinds that the cluster does not serve: they are asked for once."""

    def list(self) -> list[Manifest]:
        """Return the workloads, finished ones too.

        Kinds that the cluster does not serve are left out, and with a warning those that the user may not list.

        Raises:
            ClusterError: The cluster cannot be queried, or the user may not list Jobs.
        """
        found: list[Manifest] = []
        for kind in KINDS:
            if kind in self._unserved:
                continue
            try:
                found += with_short_timeout(self._cluster).list(kind, labels=of_jobs(()))
            except KindNotServedError:
                self._unserved.add(kind)
            except NotPermittedError as error:
                if kind == "Job":
                    raise
                log.warning("Jobs that run as %s are left out: %s", kind, error.message)
        # The Jobs of a JobSet have the labels of the job, too.
        return [each for each in found if not is_part(each)]
