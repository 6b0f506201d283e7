"""Every form of a workload on a real cluster: success, failure, and restart after an eviction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pods import small
from standins import FUNCTION, PROXY, SCRATCH, SERVER, push

from kinetic.testing import eventually
from kinetic.waiting import sleep
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.creation import create_workload
from kinetic_k8s.cluster.removal import remove_workload
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.components import PathwaysComponents
from kinetic_k8s.manifests.job import IndexedJobSpec, JobSpec
from kinetic_k8s.manifests.jobset import RESTARTS, JobSetSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.pathways import LeaderWorkerSetSpec, PathwaysSpec
from kinetic_k8s.manifests.pod import Resources
from kinetic_k8s.manifests.spec import WorkloadSpec

RECORDED = Path(__file__).parents[1] / "kinetic_k8s" / "manifests" / "workloads.json"
TINY = Resources(cpu="50m", memory="48Mi")
SLICE = replace(parse_accelerator("v5p-8"), chips_per_host=1)
"""Two hosts. Others use the same node, so each takes one of its chips only."""
HOSTS = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
host, restarts = int(os.environ["KINETIC_HOST_INDEX"]), int(os.environ["KINETIC_RESTART_ATTEMPT"])
names = os.environ["KINETIC_HOST_NAMES"].split(",")
assert os.environ["KINETIC_COORDINATOR_ADDRESS"] == f"{names[0]}:8482" and len(names) == 2
server = socket.create_server(("", 8482))
while True:
    try:
        socket.create_connection((names[1 - host], 8482), 5)
        break
    except OSError:
        time.sleep(0.2)
server.accept()
print("ready", flush=True)
"""
"""The beginning of a program on two hosts: each connects to the other by its name, which ends with its pod."""
WAIT = "time.sleep(600)"
ONCE = HOSTS + f"if restarts == 0: sys.exit(CODE) if host == 1 else {WAIT}"
"""Host 1 fails in the first attempt, and the other host waits."""
HEAD = FUNCTION + 'restarts = int(os.environ["RESTARTS"])\n'


@dataclass(frozen=True)
class Seen:
    """A workload as the cluster shows it, read without our code."""

    look: Any
    spec: WorkloadSpec

    def objects(self, kinds: str) -> list[Manifest]:
        found: list[Manifest] = self.look.bed.objects(kinds, self.look.namespace)
        return found

    def ended(self, condition: str) -> Manifest:
        """Wait for a condition of the workload; return its status."""
        bed, kind = self.look.bed, self.spec.kind.lower()
        path = bed.path_of(kind, self.look.namespace, self.spec.name)
        found: Manifest = bed.until(path, condition, seconds=600)["status"]
        return found

    def pod(self, place: str, *, other_than: str = "") -> Manifest:
        """Wait until the pod at *place*, a pattern, is ready and has printed a line."""
        pattern = re.compile(f"{self.spec.name}-{place}(-[a-z0-9]{{5}})?")
        while True:
            for pod in self.look.pods(self.spec):
                metadata, status = pod["metadata"], pod["status"]
                if (
                    pattern.fullmatch(metadata["name"])
                    and metadata["uid"] != other_than
                    and all(
                        each["ready"] for each in status.get("containerStatuses", [{"ready": 0}])
                    )
                    and self.look.bed.log_of(pod)
                ):
                    return pod
            sleep(0.5)


Start = Callable[..., Seen]


@pytest.fixture(scope="session")
def components(bed: Any) -> PathwaysComponents:
    """Stand-ins for the components of Pathways, with few resources, on the one node that there is."""
    registry = bed.environment["KUBE_BED_REGISTRY"]
    return PathwaysComponents(
        scratch=SCRATCH,
        server_image=push(registry, "pathways-server", SERVER),
        proxy_image=push(registry, "pathways-proxy", PROXY),
        manager=TINY,
        proxy=TINY,
        function=TINY,
        worker=TINY,
        head_topology=None,
    )


@pytest.fixture
def start(
    cluster: ApiServer,
    a_job: Callable[..., JobSpec],
    components: PathwaysComponents,
    slice_of_two: str,
    priority: str,
    look: Any,
) -> Iterator[Start]:
    """Start a job of a form; all are removed at the end."""
    started: list[WorkloadSpec] = []

    def make(
        form: type[WorkloadSpec],
        program: str,
        retries: int = 0,
        environment: Mapping[str, str] | None = None,
        grace: int = 5,
        **more: Any,
    ) -> Seen:
        fields = {"RESTARTS": RESTARTS} if form is PathwaysSpec else {}
        job = a_job(
            program,
            accelerator=SLICE,
            grace=timedelta(seconds=grace),
            resources=Resources(memory="48Mi"),
            field_variables=fields,
            overrides=small(priority),
        )
        if issubclass(form, JobSetSpec):
            more.setdefault("topology", None)
        if form in (PathwaysSpec, LeaderWorkerSetSpec):
            more["components"] = components
        spec = form(name=job.name, pod=job.pod, retries=retries, **more)
        started.append(spec)
        create_workload(cluster, spec, environment=environment)
        return Seen(look, spec)

    yield make
    for spec in started:
        cluster.delete(spec.kind, spec.name)


def test_the_cluster_accepts_every_recorded_manifest(cluster: ApiServer) -> None:
    for manifest in json.loads(RECORDED.read_text()).values():
        cluster.create(manifest, dry_run=True)


def test_the_hosts_of_a_jobset_restart_together_and_only_failures_of_the_function_count(
    start: Start,
) -> None:
    succeeds = start(JobSetSpec, HOSTS)
    retried = start(JobSetSpec, ONCE.replace("CODE", "1"), retries=1)
    fails = start(JobSetSpec, ONCE.replace("CODE", "1"))
    fatal = start(JobSetSpec, ONCE.replace("CODE", "2"), retries=5)
    # Without rules on messages, exit code 2 is a failure like others, and not an endless restart.
    old = start(JobSetSpec, ONCE.replace("CODE", "2"), distinguishes_exit_codes=False)
    bad_node = start(JobSetSpec, ONCE.replace("CODE", "4"))

    assert succeeds.ended("Completed").get("restarts", 0) == 0
    assert retried.ended("Completed")["restartsCountTowardsMax"] == 1
    assert fails.ended("Failed").get("restarts", 0) == 0
    assert fatal.ended("Failed").get("restarts", 0) == 0
    assert old.ended("Failed").get("restarts", 0) == 0
    uncounted = bad_node.ended("Completed")
    assert uncounted["restarts"] == 1
    assert not uncounted.get("restartsCountTowardsMax")


def test_the_first_failed_or_evicted_host_ends_an_indexed_job(
    start: Start, cluster: ApiServer
) -> None:
    succeeds = start(IndexedJobSpec, HOSTS)
    fails = start(IndexedJobSpec, ONCE.replace("CODE", "1"), retries=5)
    evicted = start(IndexedJobSpec, HOSTS + WAIT)
    service = cluster.get("Service", succeeds.spec.name)

    evicted.look.evict(evicted.pod("0")["metadata"]["name"])

    assert service["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert succeeds.ended("Complete")["succeeded"] == 2
    assert fails.ended("Failed")["conditions"][0]["reason"] == "BackoffLimitExceeded"
    failed = evicted.ended("Failed")["conditions"]
    assert {each["reason"] for each in failed} == {"PodFailurePolicy"}
    assert "DisruptionTarget" in failed[0]["message"]


def test_pathways_ends_with_its_head_and_the_eviction_of_a_worker_restarts_it_uncounted(
    start: Start,
) -> None:
    succeeds = start(PathwaysSpec, HEAD)
    retried = start(PathwaysSpec, HEAD + "sys.exit(restarts == 0)", retries=1)
    fatal = start(PathwaysSpec, HEAD + "sys.exit(2)", retries=5)
    evicted = start(PathwaysSpec, HEAD + f"if restarts == 0: {WAIT}")

    evicted.pod("pathways-head-0-0")
    evicted.look.evict(evicted.pod("worker-0-1")["metadata"]["name"])

    assert succeeds.ended("Completed").get("restarts", 0) == 0
    assert retried.ended("Completed")["restartsCountTowardsMax"] == 1
    assert fatal.ended("Failed").get("restarts", 0) == 0
    status = evicted.ended("Completed")
    assert status["restarts"] == 1
    assert not status.get("restartsCountTowardsMax")


def test_a_leaderworkerset_restarts_its_group_after_an_eviction(start: Start) -> None:
    job = start(LeaderWorkerSetSpec, FUNCTION + WAIT)
    leader = job.pod("0")
    worker = job.pod("0-1")

    job.look.evict(worker["metadata"]["name"])

    again = job.pod("0", other_than=leader["metadata"]["uid"])
    assert again["metadata"]["name"] == leader["metadata"]["name"]


def test_a_removed_indexed_job_leaves_no_objects(start: Start, cluster: ApiServer) -> None:
    job = start(IndexedJobSpec, HOSTS + WAIT, environment={"TOKEN": "secret"})
    name, labels = job.spec.name, of_job(job.spec.pod.job_id)
    job.pod(".*0")

    remove_workload(cluster, job.spec.kind, name, pods=labels, timeout=60)

    assert cluster.list("Pod", labels=labels) == []
    assert cluster.get(job.spec.kind, name) is None
    kinds = "secret,service,job"
    eventually(
        lambda: not [each for each in job.objects(kinds) if name in each["metadata"]["name"]],
        every=0.25,
    )


@pytest.mark.parametrize("form", [JobSpec, JobSetSpec, LeaderWorkerSetSpec])
def test_pods_that_have_not_started_have_no_grace_period(
    form: type[WorkloadSpec], start: Start, cluster: ApiServer
) -> None:
    job = start(form, WAIT, grace=120)
    labels = of_job(job.spec.pod.job_id)
    while not cluster.list("Pod", labels=labels):
        sleep(0.05)

    remove_workload(cluster, job.spec.kind, job.spec.name, pods=labels, timeout=90)
