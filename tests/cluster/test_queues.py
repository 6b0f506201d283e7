"""Jobs in a queue of a real Kueue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from queues import queue_for_one_job

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.queues import Queues
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.manifests.job import JobSpec, job_manifest
from kinetic_k8s.reading.causes import QUEUE, Diagnosis
from kinetic_k8s.reading.diagnosis import diagnosis_of

Make = Callable[..., JobSpec]
SLEEP = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def queue(bed: Any, namespace: str) -> Iterator[str]:
    """A queue for one job of 50m of cpu, in the tests' namespace."""
    with queue_for_one_job(bed, namespace, namespace) as name:
        yield name


def test_a_queued_job_has_its_position_and_who_holds_the_quota(
    bed: Any, cluster: ApiServer, a_job: Make, queue: str
) -> None:
    def submit() -> JobSpec:
        spec = replace(a_job(SLEEP), suspended=True)
        manifest = job_manifest(spec)
        manifest["metadata"]["labels"][QUEUE] = queue
        cluster.create(manifest)
        return spec

    def diagnose(spec: JobSpec, asked: ApiServer = cluster) -> Diagnosis | None:
        job = cluster.get("Job", spec.name)
        assert job is not None
        return diagnosis_of(job, [], queue=Queues().place(asked, job))

    with Watch(cluster, [Watched(kind=kind) for kind in ("Job", "Workload")]) as watch:
        first = submit()
        while (job := cluster.get("Job", first.name)) is None or job["spec"].get("suspend"):
            assert watch.wait(60), "Kueue does not admit the first job"
        second = submit()
        while "insufficient unused quota" not in str(found := diagnose(second)):
            assert watch.wait(60), found
    stranger = ApiServer(bed.access(queue, token="kube-bed-user"))
    plain = diagnose(second, stranger)
    for spec in (first, second):
        cluster.delete("Job", spec.name)

    assert found is not None
    assert found.cause == "queued"
    assert f"in the queue {queue!r}, at position 1 of 1: couldn't assign flavors" in found.reason
    assert found.reason.endswith(f"The quota is held by {first.name} (cpu 50m).")
    # Whoever may not read Kueue's objects learns the name of the queue.
    assert plain == Diagnosis("queued", f"The job waits in the queue {queue!r}.")
