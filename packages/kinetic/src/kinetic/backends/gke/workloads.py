"""The workloads of all jobs in a namespace, of every kind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.observation import is_part
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic_k8s.errors import KindNotServedError, NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import of_jobs
from kinetic_k8s.manifests.workload import KINDS

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

log = logging.getLogger("kinetic")

_RECENT: Final = 10.0
"""Seconds in which a list is used a second time: `kinetic jobs list` needs it twice."""


class Workloads:
    """Lists the workloads in one namespace of *cluster*."""

    def __init__(self, cluster: ApiServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._unserved: set[str] = set()
        """Kinds that the cluster does not serve: they are asked for once."""
        self._last: tuple[float, list[Manifest]] | None = None

    def recent(self) -> list[Manifest]:
        """Return the workloads of the last `list` if it is at most 10 s old and was not used here, else new ones.

        Raises:
            ClusterError: As in `list`.
        """
        last, self._last = self._last, None
        if last is not None and self._clock() - last[0] <= _RECENT:
            return last[1]
        found = self.list()
        self.forget()
        return found

    def forget(self) -> None:
        """Let `recent` ask the cluster: a workload was deleted."""
        self._last = None

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
        whole = [each for each in found if not is_part(each)]
        self._last = self._clock(), whole
        return whole
