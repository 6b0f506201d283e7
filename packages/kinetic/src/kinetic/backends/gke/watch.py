"""Watches on jobs of a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.forms import IDLE_KIND, workload_of
from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests.labels import of_jobs

if TYPE_CHECKING:
    from kinetic_payload.records.job import JobRecord

_MOST: Final = 50
"""Jobs that one label selector names; with more, all jobs of the namespace are watched."""
_LONGEST: Final = 30.0
"""Seconds after which `wait` returns, so that the outcome in the store is read."""
_SHORTEST: Final = 1.0
_SHARE: Final = 0.05
"""Of the time without a change: how much later than its end a job of `IDLE_KIND` is seen to have ended."""


class JobWatch:
    """A watch on the pods and the workloads of some jobs.

    If one of them *ends_silently*, its end changes none of these objects: its accelerator idles until the
    outcome in the store is read.
    """

    def __init__(
        self,
        watch: Watch,
        *,
        ends_silently: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = watch
        self._ends_silently = ends_silently
        self._clock = clock
        self._changed_at = clock()

    def wait(self, timeout: float | None) -> None:
        """Return when the jobs may have changed, or after *timeout* seconds."""
        longest = _LONGEST
        if self._ends_silently:
            quiet = self._clock() - self._changed_at
            longest = min(longest, max(_SHORTEST, quiet * _SHARE))
        if self._watch.wait(longest if timeout is None else min(timeout, longest)):
            self._changed_at = self._clock()

    def wake(self) -> None:
        """Make the current call of `wait`, or the next one, return at once. Any thread may call it."""
        self._watch.wake()


class JobWatches:
    """All watches on jobs of one cluster in this process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._wakes: dict[str, list[Callable[[], object]]] = {}

    @contextmanager
    def open(self, records: Sequence[JobRecord]) -> Iterator[JobWatch]:
        """Watch these jobs within the block."""
        job_ids = [record.job_id for record in records]
        labels = of_jobs(tuple(job_ids) if len(job_ids) <= _MOST else ())
        workloads = sorted({workload_of(record) for record in records})
        silent = IDLE_KIND in workloads
        kinds = [Watched(kind=kind, labels=labels) for kind in ("Pod", *workloads)]
        with Watch(self._cluster, kinds) as watch:
            self._add(job_ids, watch.wake)
            try:
                yield JobWatch(watch, ends_silently=silent)
            finally:
                self._remove(job_ids, watch.wake)

    def wake(self, job_id: str) -> None:
        """Wake all watches on the job; the reader of its log calls this at the log's end."""
        with self._lock:
            wakes = list(self._wakes.get(job_id, ()))
        for wake in wakes:
            wake()

    def _add(self, job_ids: Sequence[str], wake: Callable[[], object]) -> None:
        with self._lock:
            for job_id in job_ids:
                self._wakes.setdefault(job_id, []).append(wake)

    def _remove(self, job_ids: Sequence[str], wake: Callable[[], object]) -> None:
        with self._lock:
            for job_id in job_ids:
                self._wakes[job_id].remove(wake)
                if not self._wakes[job_id]:
                    del self._wakes[job_id]
