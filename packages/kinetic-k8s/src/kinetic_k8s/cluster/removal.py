"""Removal of a job: complete only when none of its pods is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import ConflictError, StillThereError

_LOOK_AGAIN = 5.0


def remove_workload(
    cluster: Cluster,
    kind: str,
    name: str,
    *,
    pods: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Delete a workload and wait until it and its pods are gone; do nothing if it does not exist.

    The pods get SIGTERM and their grace period. Objects that it owns are deleted with it.

    Args:
        cluster: The workload's cluster and namespace.
        kind: Its kind, such as `Job`.
        name: Its name.
        pods: The label selector of its pods.
        timeout: The time limit in seconds.
        clock: Returns the current time in seconds.

    Raises:
        StillThereError: A pod is left after *timeout* seconds; its deletion continues.
        ClusterError: The workload or a pod cannot be deleted, so pods may continue to run.
    """
    deadline = clock() + timeout
    cluster.delete(kind, name)
    with Watch(cluster, [Watched(kind="Pod", labels=pods)]) as watch:
        while left := cluster.list("Pod", labels=pods):
            for pod in left:
                # The garbage collector deletes them a little later too, except orphaned pods.
                if "deletionTimestamp" in pod["metadata"]:
                    continue
                with suppress(ConflictError):  # Another pod of the same name replaced it.
                    cluster.delete("Pod", pod["metadata"]["name"], uid=pod["metadata"]["uid"])
            if clock() >= deadline:
                names = ", ".join(pod["metadata"]["name"] for pod in left)
                raise StillThereError(
                    f"After {timeout:g} s, these pods in {cluster.identity} have not ended: {names}.",
                    hint="Each got SIGTERM and is killed after its grace period. Check again later.",
                )
            watch.wait(min(_LOOK_AGAIN, max(deadline - clock(), 0.0)))
