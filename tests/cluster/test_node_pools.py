"""Where pods run among several node pools. The nodes are objects without machines: pods are bound to them, and wait."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from locks import locked
from pods import small
from standins import push

from kinetic.waiting import sleep
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.creation import create_workload
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import PathwaysComponents
from kinetic_k8s.manifests.job import IndexedJobSpec, JobSpec
from kinetic_k8s.manifests.jobset import JobSetSpec
from kinetic_k8s.manifests.labels import JOB_ID, NODE_POOL
from kinetic_k8s.manifests.pathways import PathwaysSpec
from kinetic_k8s.manifests.pod import Resources
from kinetic_k8s.manifests.spec import WorkloadSpec

TINY = Resources(cpu="50m", memory="48Mi")
SLEEP = "import time; time.sleep(600)"
# No test of another module may ask for these accelerators: its pods would be bound to these nodes.
SLICE, TYPE = "tpu7x-8", ("tpu7x", "--tpu", "4", "--topology")


@pytest.fixture
def add_nodes(bed: Any, slice_of_two: str) -> Iterator[Callable[..., set[str]]]:
    """Hold all such nodes; return what adds nodes to a new node pool and returns their names.

    The real node is in a node pool meanwhile: JobSet places nothing while a node lacks the label.
    """
    added: list[str] = []

    def add(count: int, kind: str, *options: str) -> set[str]:
        pool = f"np-{secrets.token_hex(3)}"
        names = [f"{pool}-{index}" for index in range(count)]
        added.extend(names)
        about = ("--nodepool", pool, "--type", kind, *options)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda name: bed.run("accel", "node", name, *about), names))
        return set(names)

    with locked(bed.folder, "node-pools"):
        yield add
        bed.kubectl("delete", "node", "--wait=false", *added)


@pytest.fixture
def create(
    cluster: ApiServer, a_job: Callable[..., JobSpec], look: Any
) -> Iterator[Callable[..., WorkloadSpec]]:
    """Return what creates a workload; all are removed at the end."""
    created: list[WorkloadSpec] = []

    def make(accelerator: str, form: type[WorkloadSpec] = JobSpec, **more: Any) -> WorkloadSpec:
        overrides = more.pop("overrides", small(tolerations=()))
        found = parse_accelerator(accelerator)
        job = a_job(SLEEP, accelerator=found, resources=TINY, overrides=overrides)
        created.append(form(name=job.name, pod=job.pod, **more))
        create_workload(cluster, created[-1])
        return created[-1]

    yield make
    # No kubelet ends the pods of these nodes.
    of_them = f"{JOB_ID} in ({','.join(spec.pod.job_id for spec in created)})"
    what = ("jobsets,jobs,pods", "-n", look.namespace, "-l", of_them)
    look.bed.kubectl("delete", *what, "--force", "--grace-period=0", "--wait=false")


@pytest.fixture
def node_names(look: Any) -> Callable[[WorkloadSpec], set[str]]:
    """Return what waits until the hosts of a job are bound to nodes, and returns the names of those."""

    def names(spec: WorkloadSpec) -> set[str]:
        until = time.monotonic() + 120
        while True:
            hosts = [pod["spec"] for pod in look.pods(spec) if is_host(pod)]
            if len(hosts) == spec.pod.accelerator.hosts and all(
                "nodeName" in each for each in hosts
            ):
                return {each["nodeName"] for each in hosts}
            assert time.monotonic() < until, hosts
            sleep(0.2)

    return names


def is_host(pod: Manifest) -> bool:
    return "pathways-head" not in pod["metadata"]["name"]


@pytest.fixture(scope="session")
def components(bed: Any) -> PathwaysComponents:
    """Components that do nothing: the workers are created once those of the head run."""
    image = push(bed.environment["KUBE_BED_REGISTRY"], "idle", SLEEP)
    return PathwaysComponents(
        scratch="gs://bucket/scratch", server_image=image, proxy_image=image, head_topology=None,
        manager=TINY, proxy=TINY, function=TINY, worker=TINY,
    )  # fmt: skip


def test_a_slice_is_one_node_pool_of_its_machine_and_the_next_slice_another(
    add_nodes: Any, create: Any, node_names: Any, components: Any
) -> None:
    pools = [add_nodes(2, *TYPE, "2x2x2") for _ in range(3)]
    for topology in ("2x2x1", "2x2x4"):
        add_nodes(1, *TYPE, topology)

    jobs = [
        create(SLICE, PathwaysSpec, components=components),
        *(create(SLICE, JobSetSpec) for _ in range(2)),
    ]

    found = [node_names(job) for job in jobs]
    assert sorted(found, key=sorted) == sorted(pools, key=sorted)


def test_the_hosts_of_an_indexed_job_share_a_node_pool(
    add_nodes: Any, create: Any, node_names: Any
) -> None:
    pools = [add_nodes(2, *TYPE, "2x2x2") for _ in range(2)]

    assert node_names(create(SLICE, IndexedJobSpec)) in pools


def test_a_pod_runs_on_its_machine_and_not_on_a_similar_one(
    bed: Any, add_nodes: Any, create: Any, node_names: Any, look: Any
) -> None:
    gpus, tpus = ("nvidia-tesla-p100", "--gpu"), ("tpu-v6e-slice", "--topology", "2x4", "--tpu")
    pools = {
        "p100": add_nodes(1, *gpus, "1"),
        "p100x4": add_nodes(1, *gpus, "4"),
        "p100:spot": add_nodes(1, *gpus, "1", "--spot"),
        "v6e-8": add_nodes(1, *tpus, "8"),
        "two machines": add_nodes(2, *tpus, "4"),
        "reserved": add_nodes(1, *tpus, "8"),
    }
    # GKE labels spot nodes; who creates the node pool taints them.
    [spot], [reserved] = pools["p100:spot"], pools["reserved"]
    bed.kubectl("taint", "node", spot, "cloud.google.com/gke-spot=true:NoSchedule")
    reservation = {"spec": {"nodeSelector": {NODE_POOL: reserved.rpartition("-")[0]}}}

    found = {"reserved": node_names(create("v6e-8", overrides=reservation))}
    for name in ("p100x4", "p100:spot", "p100", "v6e-8"):
        found[name] = node_names(create(name))
    # All that fit are taken, and others are free.
    waiting = [create(name) for name in ("p100", "p100:spot", "p100x2", "v6e-8")]

    assert found == {name: pools[name] for name in found}
    until = time.monotonic() + 120
    for spec in waiting:
        while "Unschedulable" not in json.dumps(look.pods(spec)):
            assert time.monotonic() < until, look.pods(spec)
            sleep(0.2)
