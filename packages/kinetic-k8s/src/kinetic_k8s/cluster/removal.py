"""Removal of a job: complete only when none of its pods is left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import (
    ClusterError,
    ClusterUnreachableError,
    ConflictError,
    NotAuthenticatedError,
    NotPermittedError,
    RefusedError,
    StillThereError,
)
from kinetic_k8s.reading.attempts import views
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer, Propagation

log = logging.getLogger("kinetic")

_LOOK_AGAIN = 5.0
_PARALLEL = 8
_UNSTARTED_GRACE = 1
"""The grace period, in seconds, of a pod that has nothing to save yet."""


def remove_workload(
    cluster: ApiServer,
    kind: str,
    *names: str,
    pods: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Delete the workloads of a job and wait until they and their pods are gone; ignore those that do not exist.

    The pods get SIGTERM and their grace period, except for pods that have not started. Objects that it owns
    are deleted with it.

    Args:
        cluster: Their cluster and namespace.
        kind: Their kind, such as `Job`.
        names: Their names.
        pods: The label selector of their pods.
        timeout: The time limit in seconds.
        clock: Returns the current time in seconds.

    Raises:
        StillThereError: A pod is left after *timeout* seconds; its deletion continues.
        ClusterError: The workload or a pod cannot be deleted, so pods may continue to run.
    """
    deadline = clock() + timeout
    propagation = _propagation(kind)
    at_once = propagation == "Background"

    def delete(name: str) -> None:
        cluster.delete(kind, name, propagation=propagation)

    def is_there(name: str) -> bool:
        return cluster.get(kind, name, brief=True) is not None

    parallel_map(delete, names, threads=_PARALLEL)
    watched = [Watched(kind=each, labels=pods) for each in ("Pod", *(() if at_once else (kind,)))]
    with Watch(cluster, watched) as watch:
        while True:
            there = not at_once and any(map(is_there, names))
            left = views(cluster.list("Pod", labels=pods))
            if not there and not left:
                return
            # While a workload is there, a pod that was deleted by us might be replaced. Otherwise the garbage
            # collector deletes it a little later, except for orphaned pods.
            for pod in (pod for pod in left if pod.leaving or not there):
                # A container that starts during its grace period gets SIGTERM before its program can handle that;
                # process 1 then ignores it to the end.
                grace = None if pod.started else _UNSTARTED_GRACE
                given = pod.manifest["metadata"].get("deletionGracePeriodSeconds")
                shorter = grace is not None and given is not None and given > grace
                if shorter or not pod.leaving:
                    with suppress(ConflictError):  # Another pod of the same name replaced it.
                        cluster.delete("Pod", pod.name, uid=pod.uid, grace=grace)
            if clock() >= deadline:
                found = ", ".join(pod.name for pod in left) or f"none, only {kind} {names[0]}"
                raise StillThereError(
                    f"After {timeout:g} s, these pods in {cluster.identity} have not ended: {found}.",
                    hint="Each got SIGTERM and is killed after its grace period. Check again later.",
                )
            watch.wait(min(_LOOK_AGAIN, max(deadline - clock(), 0.0)))


def check_removal(cluster: ApiServer, kind: str, name: str, *, uid: str) -> None:
    """Raise if the deletion of the workload with this uid is refused; delete nothing.

    Of other problems, the deletion itself tells: a webhook that supports no dry runs, for instance, rejects them all.

    Raises:
        NotPermittedError, RefusedError: The cluster refuses it.
        NotAuthenticatedError, ClusterUnreachableError: The cluster cannot be asked.
    """
    try:
        cluster.delete(kind, name, uid=uid, propagation=_propagation(kind), dry_run=True)
    except (NotPermittedError, RefusedError, NotAuthenticatedError, ClusterUnreachableError):
        raise
    except ClusterError as error:
        log.debug("A dry run of the deletion of %s %s failed: %s", kind, name, error)


def _propagation(kind: str) -> Propagation:
    """Return how a workload is deleted. A Job makes no more pods as soon as it is deleted.

    Other kinds have children that replace pods until they are deleted themselves, which only a deletion in the
    foreground waits for.
    """
    return "Background" if kind == "Job" else "Foreground"
