"""Workloads that nobody needs any more: of ended jobs, of killed submits, and without a record."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import datetime
from functools import partial
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kinetic.backends.gke.observation import IDLE_KIND, Observer, belongs_to, is_part, job_of
from kinetic.errors import KineticError
from kinetic.job_status import JobStatus
from kinetic.jobs.services import LOOK
from kinetic_k8s.cluster.translation import Identity
from kinetic_k8s.errors import (
    ClusterError,
    KindNotServedError,
    NotPermittedError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID, JOBSET_NAME, of_jobs
from kinetic_k8s.manifests.names import (
    CONTAINER,
    environment_secret_name,
    is_runner_config_map,
)
from kinetic_k8s.manifests.workload import KINDS
from kinetic_k8s.reading.attempts import views
from kinetic_k8s.reading.causes import QUEUE
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.layout import Flag, JobObjects, is_group_id, title_of
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.records.storage import read_verified
from kinetic_payload.stores.store import Location
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.settings.keys import KeySigner
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.stores.store import Store

log = logging.getLogger("kinetic")

LEFT_AGE: Final = 3600.0
"""Seconds after which a workload whose objects are incomplete was left by a killed submit; a submit creates them
within seconds, and waits at most a minute for each."""
_NEW: Final = 300.0
"""Seconds in which a workload may be newer than the list of records."""
_PARALLEL: Final = 8
_MOST: Final = 20
"""Workloads whose objects one call looks for."""
_RECENT: Final = 10.0
"""Seconds in which a list is used a second time: `kinetic jobs list` needs it twice."""
_REPORTED: Final = set[str]()
"""The uids of workloads without a record that this process has reported."""


class Workloads:
    """The workloads in one namespace of *cluster*, and those of jobs at *store* that were left behind."""

    def __init__(
        self,
        cluster: ApiServer,
        store: Location,
        *,
        reported: set[str] = _REPORTED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._reported = reported
        self._clock = clock
        self._unserved: set[str] = set()
        """Kinds that the cluster does not serve: they are asked for once."""
        self._last: tuple[float, list[Manifest]] | None = None

    def report(self, workloads: Sequence[Manifest], recorded: Set[str], now: float) -> None:
        """Warn once of each job without a record: they are skipped everywhere, and nobody sees what they cost."""
        for each in workloads:
            job_id, view = job_of(each), WorkloadView(each)
            # Batches are recorded elsewhere.
            known = job_id in recorded or is_group_id(job_id) or view.uid in self._reported
            if known or now - created_at(each) < _NEW:
                continue
            self._reported.add(view.uid)
            log.warning(
                "Job %s is left out: it has no record in %s. Delete its %s: %s",
                job_id,
                self._store,
                view.kind,
                delete_command(view.kind, view.name, self._cluster.identity),
            )

    def remove(self, workloads: Sequence[Manifest], observer: Observer) -> None:
        """Delete workloads that wait, for longer than `LEFT_AGE`, for what only their killed submit would do.

        That is to create their objects, or to resume them. Their pods may hold an accelerator. The jobs have
        failed then. Each call looks at a part of the workloads that wait.
        """
        now = self._cluster.now().timestamp()  # This machine's clock may be wrong.
        old = [each for each in workloads if now - created_at(each) > LEFT_AGE]
        waiting = self._not_started(old) if old else []
        first = int(now) % max(len(waiting), 1)
        chosen = [*waiting[first:], *waiting[:first]][:_MOST]
        lacks = parallel_map(partial(self._lack, observer), chosen, threads=_PARALLEL)
        for each, lack in zip(chosen, lacks, strict=True):
            if not lack:
                continue
            view = WorkloadView(each)
            log.warning(
                "%s is removed: its submit was interrupted before it %s.",
                title_of(job_of(each)),
                lack,
            )
            self._cluster.within(LOOK).delete(view.kind, view.name, uid=view.uid)
            self.forget()

    def find(self) -> list[Manifest]:
        """Return the workloads of jobs whose objects are at the store."""
        return [each for each in self.list() if str(self._store) in stores_of(each)]

    def _not_started(self, workloads: Sequence[Manifest]) -> list[Manifest]:
        """Return those of *workloads* that have neither ended nor a pod that has started."""
        pods = views(self._cluster.within(LOOK).list("Pod", labels=of_jobs(())))
        labels = (pod.manifest["metadata"]["labels"] for pod in pods if pod.started)
        # The workers of a batch may have a JobSet each.
        started = {each.get(JOBSET_NAME) or each.get(JOB_ID) for each in labels}
        found = []
        for each in workloads:
            view = WorkloadView(each)
            key = view.name if view.kind == "JobSet" else job_of(each)
            if key not in started and not view.has_ended:
                found.append(each)
        return found

    def _lack(self, observer: Observer, workload: Manifest) -> str:
        """Return what the submit of a pending workload has not done; empty if nothing, or if it is not pending."""
        if observer.of(workload, (), job_of(workload)).status is not JobStatus.PENDING:
            return ""
        for kind, name in sorted(needs_of(workload)):
            if self._cluster.within(LOOK).get(kind, name, brief=True) is None:
                return f"created the {kind} {name}"
        view = WorkloadView(workload)
        return "resumed it" if view.held and QUEUE not in view.labels else ""

    def recent(self) -> list[Manifest]:
        """Return the workloads of the last `list` if it is at most 10 s old and was not used here, else new ones."""
        last, self._last = self._last, None
        if last is not None and self._clock() - last[0] <= _RECENT:
            return last[1]
        found, self._last = self.list(), None
        return found

    def forget(self) -> None:
        """Let `recent` ask the cluster: a workload was deleted."""
        self._last = None

    def list(self) -> list[Manifest]:
        """Return the workloads, finished ones too.

        Kinds that the cluster does not serve are left out, and with a warning those that the user may not list.
        """
        found: list[Manifest] = []
        for kind in KINDS:
            if kind in self._unserved:
                continue
            try:
                found += self._cluster.within(LOOK).list(kind, labels=of_jobs(()))
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


def created_at(workload: Manifest) -> float:
    """Return when the workload was created, by the clock of its cluster."""
    return datetime.fromisoformat(workload["metadata"]["creationTimestamp"]).timestamp()


def stores_of(workload: Manifest) -> set[str]:
    """Return the stores in which the runners of the workload find their job."""
    found = set()
    for container in _containers(workload):
        command = container.get("command") or []
        found |= {value for flag, value in pairwise(command) if flag == Flag.STORE}
    return found


def needs_of(workload: Manifest) -> set[tuple[str, str]]:
    """Return kind and name of the objects of Kinetic without which the function's container does not start.

    Objects that `pod_overrides` names are the user's own, and may come later.
    """
    found = set()
    own = environment_secret_name(workload["metadata"]["name"])
    for container in _containers(workload):
        for source in container.get("envFrom") or ():
            secret = source.get("secretRef") or {}
            if secret.get("name") == own and not secret.get("optional"):
                found.add(("Secret", own))
    for volume in (each for spec in _pod_specs(workload) for each in spec.get("volumes") or ()):
        config_map = volume.get("configMap") or {}
        name = config_map.get("name") or ""
        if is_runner_config_map(name) and not config_map.get("optional"):
            found.add(("ConfigMap", name))
    return found


def _containers(manifest: Any) -> Iterator[Manifest]:
    return (
        each
        for spec in _pod_specs(manifest)
        for each in spec["containers"]
        if each.get("name") == CONTAINER
    )


def _pod_specs(manifest: Any) -> Iterator[Manifest]:
    """Iterate over the specs of pods, wherever they are in a workload of any kind."""
    if isinstance(manifest, dict):
        if isinstance(manifest.get("containers"), list):
            yield manifest
        else:
            for value in manifest.values():
                yield from _pod_specs(value)
    elif isinstance(manifest, list):
        for value in manifest:
            yield from _pod_specs(value)


_LOOK_AGAIN: Final = 60.0
"""Seconds until a workload that could not be deleted is tried again."""


class IdleWorkloads:
    """Deletes workloads on *cluster* that would go on, although their job has an outcome in the store.

    These are LeaderWorkerSets, and workloads of cancelled jobs whose client was killed before it deleted them.
    The outcome must be signed with the key of the namespace, even with KINETIC_TRUST_BUCKET: anybody who can
    write to the bucket could otherwise end a running job.
    """

    def __init__(
        self,
        cluster: ApiServer,
        key_signer: KeySigner | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._signer: Signing = UNSIGNED if key_signer is None else key_signer.strict
        self._clock = clock
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Job → held while its workload is being deleted. Others wait: their process may end after that."""
        self._next: dict[str, float] = {}
        """Job → when its workload, which could not be deleted, is tried again; never after it was deleted."""
        self._warned: set[str] = set()

    def end(self, store: Store, job_id: str, name: str, kind: str = IDLE_KIND) -> None:
        """Delete the workload *name* if it would go on after the job's outcome; at most once in a process.

        After a failure the user is told how to delete it, and a later look tries again.
        """
        with self._locks[job_id]:
            if self._clock() < self._next.get(job_id, 0.0):
                return
            try:
                outcome = read_verified(store, self._signer, JobObjects(job_id).outcome)
                if outcome is None:
                    return
                if kind != IDLE_KIND and fields_of(outcome).get("status") != "cancelled":
                    return  # It ends by itself.
            except KineticError as error:  # The next look tries again.
                log.info("The outcome of %s cannot be verified: %s", job_id, error.message)
                return
            try:
                cluster = self._cluster.within(LOOK)
                found = cluster.get(kind, name, brief=True)
                if found is not None and belongs_to(found, job_id):
                    cluster.delete(kind, name, uid=found["metadata"]["uid"])
                self._next[job_id] = inf
            except ClusterError as error:
                self._next[job_id] = self._clock() + _LOOK_AGAIN
                self._warn(job_id, kind, name, error)

    def _warn(self, job_id: str, kind: str, name: str, error: ClusterError) -> None:
        if job_id not in self._warned:
            self._warned.add(job_id)
            log.warning(
                "%s has ended, and its %s, which is still billed, could not be deleted: %s Delete it: %s",
                title_of(job_id),
                kind,
                error.message,
                delete_command(kind, name, self._cluster.identity),
            )


def delete_command(kind: str, name: str, where: Identity) -> str:
    """Return the command of kubectl that deletes a workload in the namespace and the cluster *where*."""
    command = ["kubectl", "delete", kind.lower(), name, "-n", where.namespace]
    if where.context is not None:
        command += ["--context", where.context]
    return shlex.join(command)
