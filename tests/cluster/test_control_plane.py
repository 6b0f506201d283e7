"""A batch of many workers on a control plane without a node: the test ends their pods, as a kubelet would."""

from __future__ import annotations

import pytest
from bed import Bed

from kinetic.backends.gke.observation import batch_observation
from kinetic.job_status import JobStatus
from kinetic.waiting import sleep
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.creation import create_workload
from kinetic_k8s.cluster.removal import remove_workload
from kinetic_k8s.manifests.job import BatchSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.pod import PodSpec
from kinetic_k8s.reading.attempts import PodView

WORKERS, AT_ONCE = 200, 64


@pytest.fixture(autouse=True)
def shared_node() -> None:
    """This test needs no node, so it neither starts the one of other tests nor waits for it."""


def test_two_hundred_workers_are_one_job_whose_state_needs_no_list_of_its_pods(
    plane_of_clusters: Bed,
) -> None:
    plane, seen = plane_of_clusters, set[JobStatus]()
    pod = PodSpec(
        job_id="grp-0a1b2c3d",
        accelerator=parse_accelerator("cpu"),
        image="kinetic.test/none",
        command=("python3",),
    )
    spec = BatchSpec(
        name="kn-many-0a1b2c3d", pod=pod, workers=(*range(WORKERS),), at_once=AT_ONCE, per_worker=1
    )
    lost, ended = set[str](), set[str]()
    with plane.new_namespace() as namespace:
        cluster = ApiServer(plane.access(namespace))
        create_workload(cluster, spec)
        while not (
            found := batch_observation([cluster.get("Job", spec.name) or {}])
        ).status.terminal:
            seen.add(found.status)
            pods = plane.objects("pod", namespace, of_job(pod.job_id))
            running = [each for each in pods if each["status"]["phase"] == "Pending"]
            assert len(running) <= AT_ONCE
            for each in running:
                about = each["metadata"]
                # Two workers are lost once: their indexes are started again, and no other.
                is_lost = PodView(each).host in (3, 130) and len(lost) < 2
                (lost if is_lost else ended).add(about["name"])
                each["status"]["phase"] = "Failed" if is_lost else "Succeeded"
                del about["resourceVersion"]
                path = plane.path_of("pod", namespace, about["name"])
                plane.ask("PUT", f"{path}/status", body=each)
            sleep(0.1)
        status = plane.ask("GET", plane.path_of("job", namespace, spec.name))["status"]
        remove_workload(cluster, "Job", spec.name, pods=of_job(pod.job_id), timeout=60)
        left = plane.objects("job,pod", namespace)

    assert found.status is JobStatus.SUCCEEDED
    assert seen == {JobStatus.PENDING, JobStatus.RUNNING}
    assert (status["succeeded"], status["completedIndexes"]) == (WORKERS, f"0-{WORKERS - 1}")
    assert (len(ended), len(lost)) == (WORKERS, 2)
    assert not left
