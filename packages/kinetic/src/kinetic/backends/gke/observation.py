"""Observe a job on a cluster: decide its state from its workload and its pods, and whether it is certainly gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from kinetic.backends.backend import AttemptView, Ending, Explanation, Observation
from kinetic.backends.gke.forms import workload_of
from kinetic.errors import JobError, ObjectNotFoundError, SignatureError
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import STARTING, starting_or_gone
from kinetic.jobs.services import LOOK
from kinetic.waiting import sleep
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID, of_job, of_jobs
from kinetic_k8s.manifests.workload import KINDS
from kinetic_k8s.reading.attempts import hosts_of, views
from kinetic_k8s.reading.diagnosis import diagnosis_of
from kinetic_k8s.reading.status import AttemptState, State, attempts_of, status_of
from kinetic_k8s.reading.waiting import last_change
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import JobObjects, is_group_id, title_of
from kinetic_payload.limits import read_record
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.records.storage import read_verified

if TYPE_CHECKING:
    from kinetic.settings.keys import KeySigner
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.reading.queue import QueuePlace
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.outages import OutageLimit
    from kinetic_payload.stores.store import Store

_STATUS: Final = {
    State.PENDING: JobStatus.PENDING,
    State.RUNNING: JobStatus.RUNNING,
    State.SUCCEEDED: JobStatus.SUCCEEDED,
    State.FAILED: JobStatus.FAILED,
    State.ABSENT: JobStatus.NOT_FOUND,
}

IDLE_KIND: Final = "LeaderWorkerSet"
"""It restarts its pods whenever they end, so they stay up after the job, and are billed."""
_MOST_WATCHED: Final = 50
"""Jobs that one label selector names; with more, all jobs of the namespace are watched."""
_AT_ONCE: Final = timedelta(seconds=5)
"""Longest time from a Job to its first pod. A pod that replaces an evicted one comes after 8 s or more."""


@frozen()
class JobObservation(Observation):
    """An observation with the workload and the pods that it was decided from."""

    obstacles: frozenset[str] = frozenset()
    """Why containers cannot start: a wait explains the job again when this changes."""
    job: Manifest | None = field(default=None, compare=False, repr=False)
    pods: tuple[Manifest, ...] = field(default=(), compare=False, repr=False)


def observation_of(
    job: Manifest | None, pods: Sequence[Manifest], *, begun: bool = False
) -> JobObservation:
    """Decide the observation of *job* and *pods*; *begun*: whether an attempt is known to have begun."""
    found = status_of(job, pods, attempts=int(begun))
    status = _STATUS[found.state]
    vanished = status in (JobStatus.SUCCEEDED, JobStatus.FAILED) and found.over
    silent = job is not None and WorkloadView(job).kind == IDLE_KIND and status is JobStatus.RUNNING
    return JobObservation(
        status,
        found.reason,
        () if job is None else _attempts(job, pods),
        Ending.VANISHED if vanished else Ending.SILENT if silent else Ending.REPORTED,
        obstacles=frozenset().union(*(pod.obstacles for pod in views(pods))),
        job=job,
        pods=tuple(pods),
    )


def batch_observation(workloads: Sequence[Manifest]) -> JobObservation:
    """Decide the observation of a batch, which may have thousands of pods, from its workloads alone."""
    if not workloads:
        return JobObservation(JobStatus.NOT_FOUND)
    views = [WorkloadView(each) for each in workloads]
    left = [each for each in views if not each.has_ended]
    if not left:
        failure = next((each.failure for each in views if each.failure), {})
        status = JobStatus.FAILED if failure else JobStatus.SUCCEEDED
        reason = str(failure.get("message") or failure.get("reason") or "")
        return JobObservation(status, reason, ending=Ending.VANISHED, job=workloads[0])
    begun = len(left) < len(views) or any(each.has_begun for each in left)
    status = JobStatus.RUNNING if begun else JobStatus.PENDING
    waiting = [each for each in left if not each.has_begun] or left
    return JobObservation(status, job=waiting[0].manifest)


def _attempts(job: Manifest, pods: Sequence[Manifest]) -> tuple[AttemptView, ...]:
    """Return the attempts that *pods* still show; the store has reports of earlier ones."""
    return tuple(
        AttemptView(each.number, each.hosts, each.state.value, each.message)
        for each in attempts_of(job, pods)
        if each.state is not AttemptState.WAITING
    )


def explanation_of(
    seen: JobObservation,
    events: Sequence[Manifest],
    *,
    queue: QueuePlace | None = None,
    now: datetime | None = None,
) -> Explanation:
    """Return why a job has the status *seen*.

    Args:
        seen: The observation.
        events: Events of its workload, of its controllers and of its pods.
        queue: Its place in a queue of Kueue.
        now: The time, to report a job for which nothing changes. None: do not.
    """
    changed = None if seen.job is None else last_change(seen.job, seen.pods)
    waited = 0.0 if now is None or changed is None else (now - changed).total_seconds()
    begun = seen.status is JobStatus.RUNNING
    found = diagnosis_of(seen.job, seen.pods, events, queue=queue, waited=waited, begun=begun)
    # Between two attempts, the report of the earlier one says how it ended.
    ended = any(not pod.alive for pod in hosts_of(views(seen.pods)))
    between = begun and ended
    if found is None or between:
        return Explanation(seen.reason)
    reason = found.reason
    if not seen.status.terminal and seen.reason and seen.reason not in reason:
        reason = f"{seen.reason} {reason}"
    return Explanation(
        reason,
        found.remedy,
        trouble=not seen.status.terminal,
        out_of_memory=found.cause == "out-of-memory",
    )


def has_first_pod(job: Manifest, pods: Sequence[Manifest]) -> bool:
    """Return whether one of *pods* is the Job's first, and does not replace an evicted one."""
    begun = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
    created = (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in pods)
    return any(each - begun <= _AT_ONCE for each in created)


def is_part(manifest: Manifest) -> bool:
    """Return whether an object is a part of a workload, as a Job of a JobSet is."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] in KINDS for owner in owners)


def job_of(manifest: Manifest) -> str:
    """Return the id of the job to which an object belongs; empty if it has none."""
    return str((manifest["metadata"].get("labels") or {}).get(JOB_ID, ""))


def belongs_to(manifest: Manifest, job_id: str) -> bool:
    """Return whether an object belongs to the job *job_id*, not to another job with the same k8s name."""
    return job_of(manifest) == job_id


_REPEAT: Final = 1.0
"""Seconds until an absent job is observed again: a server that restarts may list nothing for a moment."""


@dataclass
class Observer:
    """Observes jobs in one namespace of a *cluster*, whose objects lie in *store*."""

    cluster: ApiServer
    store: Store
    key_signer: KeySigner | None
    pause: Callable[[float], object] = field(default=sleep, kw_only=True)
    starting: float = field(default=STARTING, kw_only=True)
    begun: set[str] = field(default_factory=set, kw_only=True)
    """Jobs that have begun an attempt: they are never pending again."""

    @property
    def signer(self) -> Signing:
        """Verifies the job's records."""
        return self.key_signer or UNSIGNED

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same observer for the calls of one operation, which share *limit*."""
        return replace(self, store=self.store.limited(limit))

    def observe(self, record: JobRecord) -> Observation:
        """Return the observation of the job; NOT_FOUND only if that is certain.

        Raises:
            JobError: The job was submitted to another cluster or namespace.
            ConfigurationError: Where it was submitted cannot be decided, because the key may not be read.
        """
        seen = self._look(record)
        if seen.status is not JobStatus.NOT_FOUND:
            return seen
        verify = self.signer.verify
        found = starting_or_gone(self.store, record, verify, starting=self.starting)
        if found.status is JobStatus.PENDING or not self._is_recorded_here(record):
            return found
        self.pause(_REPEAT)
        seen = self._look(record)
        if seen.status is not JobStatus.NOT_FOUND:
            return seen
        name = f"of {record.job_id}" if is_group_id(record.job_id) else record.k8s_name
        where = f"There is no {workload_of(record)} {name} in {self.cluster.identity}."
        return replace(found, reason=f"{found.reason} {where}")

    def of(self, job: Manifest, pods: Sequence[Manifest], job_id: str) -> Observation:
        """Return the observation of a job whose workload and pods were listed.

        The store is queried only if an earlier pod may have been evicted.
        """
        seen = observation_of(job, pods, begun=job_id in self.begun)
        if (
            seen.status is JobStatus.PENDING
            and not job["spec"].get("suspend")
            and not has_first_pod(job, pods)
            and self._has_begun(job, pods, job_id)
        ):
            return observation_of(job, pods, begun=True)
        return seen

    def pods(self, record: JobRecord) -> Sequence[Manifest]:
        """Return the job's pods."""
        return self.cluster.within(LOOK).list("Pod", labels=of_job(record.job_id))

    def workloads(self, record: JobRecord, cluster: ApiServer | None = None) -> Sequence[Manifest]:
        """Return the workload of the job, or those of the workers of a batch; none if it has none."""
        cluster, kind = cluster or self.cluster.within(LOOK), workload_of(record)
        if is_group_id(record.job_id) and kind != "Job":
            return cluster.list(kind, labels=of_job(record.job_id))
        found = cluster.get(kind, record.k8s_name)
        return [found] if found is not None and belongs_to(found, record.job_id) else []

    def claimed_by(self, job_id: str, attempt: int, host: int) -> str | None:
        """Return the pod that has claimed *attempt* on *host*, or None."""
        name = JobObjects(job_id).claim(attempt, host)
        claim = read_verified(self.store, self.signer, name)
        return None if claim is None else str(fields_of(claim).get("hostname", ""))

    def _look(self, record: JobRecord) -> JobObservation:
        found = self.workloads(record)
        if is_group_id(record.job_id):
            return batch_observation(found)
        job = next(iter(found), None)
        # Read after the workload, so that the pods that ended it are listed.
        pods = self.pods(record)
        seen = observation_of(job, pods, begun=record.job_id in self.begun)
        # Between two pods, nothing in the cluster shows that the job has run.
        if seen.status is JobStatus.PENDING and self._has_begun(job, pods, record.job_id):
            seen = observation_of(job, pods, begun=True)
        if seen.status is JobStatus.RUNNING:
            self.begun.add(record.job_id)
        return seen

    def _has_begun(self, job: Manifest | None, pods: Sequence[Manifest], job_id: str) -> bool:
        """Return whether the first attempt has begun on all hosts, by the claims of those without a pod that did."""
        hosts = 1 if job is None else WorkloadView(job).hosts
        started = {pod.host for pod in views(pods) if pod.runs_function and pod.started}
        missing = (host for host in range(hosts) if hosts == 1 or host not in started)
        return all(self.claimed_by(job_id, 1, host) is not None for host in missing)

    def _is_recorded_here(self, record: JobRecord) -> bool:
        """Return whether the job has a record that is signed with the key of this namespace.

        Names cannot decide this: a cluster may have several addresses, and a context's name several clusters.

        Raises:
            JobError: It is signed with another key.
        """
        name = JobObjects(record.job_id).handle
        try:
            data = read_record(self.store, name)
            if self.key_signer is not None:  # Verify even with KINETIC_TRUST_BUCKET.
                self.key_signer.strict.verify(data, name)
        except ObjectNotFoundError:
            return False
        except SignatureError as error:
            raise JobError(
                f"{title_of(record.job_id)} is not in {self.cluster.identity}, and was not submitted there: "
                f"{error.message}",
                hint="Choose the cluster and the namespace to which it was submitted: "
                "KINETIC_KUBE_CONTEXT, KINETIC_NAMESPACE.",
                job_id=record.job_id,
            ) from error
        return True


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
        labels = of_jobs(tuple(job_ids) if len(job_ids) <= _MOST_WATCHED else ())
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
