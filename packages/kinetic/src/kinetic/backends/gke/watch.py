"""Watches on jobs of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.forms import workload_of
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests.labels import of_jobs

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.records.job import JobRecord

_MOST: Final = 50
"""Jobs that one label selector names; with more, all jobs of the namespace are watched."""


class JobWatches:
    """All watches on jobs of one cluster in this process."""

    def __init__(self, cluster: ApiServer) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._wakes: dict[str, list[Callable[[], object]]] = {}

    @contextmanager
    def open(self, records: Sequence[JobRecord]) -> Iterator[Watch]:
        """Watch these jobs within the block."""
        job_ids = [record.job_id for record in records]
        labels = of_jobs(tuple(job_ids) if len(job_ids) <= _MOST else ())
        workloads = sorted({workload_of(record) for record in records})
        kinds = [Watched(kind=kind, labels=labels) for kind in ("Pod", *workloads)]
        with Watch(self._cluster, kinds) as watch:
            with self._lock:
                for job_id in job_ids:
                    self._wakes.setdefault(job_id, []).append(watch.wake)
            try:
                yield watch
            finally:
                with self._lock:
                    for job_id in job_ids:
                        self._wakes[job_id].remove(watch.wake)
                        if not self._wakes[job_id]:
                            del self._wakes[job_id]

    def wake(self, job_id: str) -> None:
        """Wake all watches on the job; the reader of its log calls this at the log's end."""
        with self._lock:
            wakes = list(self._wakes.get(job_id, ()))
        for wake in wakes:
            wake()
