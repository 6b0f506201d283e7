"""End workloads that would go on although their job has its outcome."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from kinetic.backends.gke.observation import IDLE_KIND, belongs_to, job_of
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.errors import KineticError
from kinetic.waiting import sleep
from kinetic_k8s.cluster.translation import Identity
from kinetic_k8s.errors import (
    ClusterError,
    KindNotServedError,
    NotAuthenticatedError,
    NotPermittedError,
)
from kinetic_k8s.manifests.labels import of_jobs
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.signing import UNSIGNED, Signing
from kinetic_payload.records.storage import read_verified

if TYPE_CHECKING:
    from kinetic.settings.keys import KeySigner
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.stores.store import Store

log = logging.getLogger("kinetic")

_TRIES: Final = 3
_PAUSE: Final = 1.0
_LOOK_AGAIN: Final = 60.0
"""Seconds until a workload that could not be deleted is tried again, and between two looks for room."""


class IdleWorkloads:
    """Deletes workloads on *cluster* that would go on, although their job has an outcome in *store*.

    These are LeaderWorkerSets, and workloads of cancelled jobs whose client was killed before it deleted them.
    The outcome must be signed with the key of the namespace, even with KINETIC_TRUST_BUCKET: anybody who can
    write to the bucket could otherwise end a running job.
    """

    def __init__(
        self,
        cluster: ApiServer,
        store: Store,
        key_signer: KeySigner | None,
        *,
        pause: Callable[[float], object] = sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._signer: Signing = UNSIGNED if key_signer is None else key_signer.strict
        self._pause = pause
        self._clock = clock
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """Job → held while its workload is being deleted. Others wait: their process may end after that."""
        self._next: dict[str, float] = {}
        """Job → when its workload, which could not be deleted, is tried again; never after it was deleted."""
        self._warned: set[str] = set()
        self._room = threading.Lock()
        self._room_at = 0.0
        """When `make_room` looks again."""

    def make_room(self) -> None:
        """End LeaderWorkerSets of ended jobs, which may hold machines that a job waits for; at most once a minute.

        Raises:
            ClusterError: The cluster cannot be queried.
        """
        with self._room:
            if self._clock() < self._room_at:
                return
            self._room_at = self._clock() + _LOOK_AGAIN
        with suppress(KindNotServedError, NotPermittedError):
            for each in with_short_timeout(self._cluster).list(IDLE_KIND, labels=of_jobs(())):
                if job_id := job_of(each):
                    self.end(job_id, each["metadata"]["name"])

    def end(self, job_id: str, name: str, kind: str = IDLE_KIND) -> None:
        """Delete the workload *name* if it would go on after the job's outcome; at most once in a process.

        A failure is tried again; then the user is told how to delete it.
        """
        with self._locks[job_id]:
            if self._clock() < self._next.get(job_id, 0.0):
                return
            try:
                outcome = read_verified(self._store, self._signer, JobObjects(job_id).outcome)
                if outcome is None or not _goes_on(kind, outcome):
                    return
            except KineticError as error:  # The next look tries again.
                log.info("The outcome of %s cannot be verified: %s", job_id, error.message)
                return
            deleted = self._delete(job_id, kind, name)
            self._next[job_id] = inf if deleted else self._clock() + _LOOK_AGAIN

    def _delete(self, job_id: str, kind: str, name: str) -> bool:
        for tries_left in reversed(range(_TRIES)):
            try:
                cluster = with_short_timeout(self._cluster)
                found = cluster.get(kind, name, brief=True)
                if found is not None and belongs_to(found, job_id):
                    cluster.delete(kind, name, uid=found["metadata"]["uid"])
            except ClusterError as error:
                if tries_left and not isinstance(error, NotPermittedError | NotAuthenticatedError):
                    self._pause(_PAUSE)
                    continue
                self._warn(job_id, kind, name, error)
                return False
            return True
        return False

    def _warn(self, job_id: str, kind: str, name: str, error: ClusterError) -> None:
        if job_id not in self._warned:
            self._warned.add(job_id)
            log.warning(
                "Job %s has ended, and its %s, which is still billed, could not be deleted: %s Delete it: %s",
                job_id,
                kind,
                error.message,
                delete_command(kind, name, self._cluster.identity),
            )


def _goes_on(kind: str, outcome: bytes) -> bool:
    """Return whether a workload of *kind* would go on after that outcome of its job."""
    return kind == IDLE_KIND or fields_of(outcome).get("status") == "cancelled"


def delete_command(kind: str, name: str, where: Identity) -> str:
    """Return the command of kubectl that deletes a workload in the namespace and the cluster *where*."""
    command = ["kubectl", "delete", kind.lower(), name, "-n", where.namespace]
    if where.context is not None:
        command += ["--context", where.context]
    return shlex.join(command)
