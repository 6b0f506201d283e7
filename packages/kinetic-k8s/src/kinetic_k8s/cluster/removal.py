"""Removal of a job: complete only when none of its pods is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from kinetic_k8s.cluster.cluster import Cluster
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import ConflictError, StillThereError

_LOOK_AGAIN = 5.0


def remove_job(
    cluster: Cluster,
    name: str,
    *,
    pods: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Delete a Job and wait until it and its pods are gone; do nothing if it does not exist.

    The pods get SIGTERM and their grace period. What the Job owns goes with it.

    Args:
        cluster: Where it is.
        name: Of the Job.
        pods: The selector of its pods.
        timeout: Seconds.
        clock: The time.

    Raises:
        StillThereError: A pod is left after *timeout* seconds; it is being deleted all the same.
        ClusterError: The Job cannot be deleted, so its pods run on.
    """
    deadline = clock() + timeout
    cluster.delete("Job", name)
    with Watch(cluster, [Watched(kind="Pod", labels=pods)]) as watch:
        while left := cluster.list("Pod", labels=pods):
            for pod in left:
                # The collector deletes them too, a moment later; it overlooks those that are orphaned.
                if "deletionTimestamp" in pod["metadata"]:
                    continue
                with suppress(ConflictError):  # It was replaced by another of its name.
                    cluster.delete("Pod", pod["metadata"]["name"], uid=pod["metadata"]["uid"])
            if clock() >= deadline:
                names = ", ".join(pod["metadata"]["name"] for pod in left)
                raise StillThereError(
                    f"After {timeout:g} s, {names} in {cluster.identity} has not ended yet.",
                    hint="It was asked to stop and is killed after its grace period; check again later.",
                )
            watch.wait(min(_LOOK_AGAIN, max(deadline - clock(), 0.0)))
