"""Submits that are killed (SIGKILL) between any two of their requests, to the bucket and to the API server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest

import kinetic
from kinetic.backends.gke.leftovers import LEFT_AGE, Workloads, needs_of
from kinetic.backends.gke.observation import Observer
from kinetic.job_status import JobStatus
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.reading.workloads import WorkloadView
from kinetic_payload.layout import is_job_id
from kinetic_payload.stores.store import parse_location
from kinetic_servers.fakes import FakeStore
from kinetic_servers.gcs import Fault, Faults
from kinetic_servers.launches import kill_hard

SUBMITS = """
import os, sys
import google.cloud.storage, yaml  # What a submit imports.
import kinetic

@kinetic.run(
    os.environ["ACCELERATOR"], container_image=os.environ["IMAGE"], cpu="20m", memory="400Gi",
    capture_env_vars=["TOKEN"],
)
def killed():
    pass

if __name__ == "__main__":
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            killed.run_async()
            os._exit(0)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)
"""
"""For each line that it reads, it submits a job whose pod fits on no node."""


WORKLOADS = "job,jobset,leaderworkerset"


class Gate:
    """Counts the requests of a submit to both of its servers, and holds one, which is never served."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = 0
        self.names: list[str] = []
        self.reached = threading.Event()
        self.released = threading.Event()

    def hold(self, at: int) -> None:
        """Count from 1 again, and hold the request *at*; 0: none."""
        with self._lock:
            self._at = at
            self.names.clear()
            self.reached.clear()
            self.released.clear()

    def holds(self, name: str) -> bool:
        """Count a request; return whether it is to be held."""
        with self._lock:
            self.names.append(name)
            held = len(self.names) == self._at
        if held:
            self.reached.set()
        return held


class HeldInTheBucket(Fault):
    """Holds the gate's request if it is one to *bucket*, and breaks its connection at the end."""

    gate: Gate

    @property
    def holds(self) -> bool:
        return not self.gate.released.is_set()

    def matches(self, method: str, operation: str, bucket: str, name: str) -> bool:
        return bucket == self.bucket and self.gate.holds(f"{method} {operation} {name}")


@pytest.fixture
def gate(
    project: Any, relay: Any, faults: Faults, own_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gate]:
    """The gate of the project's submits, which have a namespace and a bucket of their own."""
    gate, pass_on, bucket = Gate(), relay.take, own_namespace

    def take(request: str) -> Any:
        if gate.holds(request):
            gate.released.wait(300)
            raise ConnectionAbortedError
        return pass_on(request)

    relay.take = take
    relay.handle_error = lambda *_: None  # Killed clients break their connections.
    project.bucket.create_bucket(bucket)
    fault = HeldInTheBucket(bucket=bucket, held=True, reset="before")
    fault.gate = gate
    faults.add(fault)
    project.namespace = own_namespace
    project.variables |= {
        "KINETIC_STORE": f"gs://{bucket}",
        "KINETIC_SERVICE_ACCOUNT": "default",
        "TOKEN": "a-secret-value",
    }
    # This process looks at what is left.
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    yield gate
    gate.released.set()


@pytest.mark.parametrize(
    ("backend", "accelerator", "first"),
    [
        ("gke", "cpu", ""),
        # What they do before they create the workload is the same.
        ("gke", "v5p-8", "/jobs?"),
        ("pathways", "v5p-8", "/leaderworkersets?"),
    ],
    ids=["Job", "Indexed Job", "LeaderWorkerSet"],
)
def test_a_submit_killed_between_any_two_requests_leaves_only_objects_that_are_listed_and_removed(
    project: Any,
    relay: Any,
    gate: Gate,
    wait_for: Any,
    components: dict[str, str],
    backend: str,
    accelerator: str,
    first: str,
) -> None:
    project.variables |= {**components, "KINETIC_BACKEND": backend, "ACCELERATOR": accelerator}
    relay.hidden = {"jobset.x-k8s.io"}
    (project.root / "main.py").write_text(SUBMITS)
    process = subprocess.Popen(
        [sys.executable, "main.py"],
        cwd=project.root,
        env={**project.environment, "KUBECONFIG": relay.kubeconfig(project.root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    orders, answers = process.stdin, process.stdout

    def submit(at: int) -> int:
        """Submit, and kill that at a request; return how the process ended."""
        (project.root / "salt.txt").write_text(str(at))  # Each time, the snapshot is another one.
        gate.hold(at)
        print(file=orders, flush=True)
        child = int(answers.readline())
        if at:
            wait_for(lambda: gate.reached.is_set() or not psutil.pid_exists(child))
            kill_hard(child)
        ended = int(answers.readline())
        gate.released.set()
        return ended

    with process:
        ended = [submit(0)]
        # At a request that only reads, what is left is the same as at the next one.
        writes = [n for n, name in enumerate(gate.names, 1) if is_write(name)]
        begun = next(n for n in writes if first in gate.names[n - 1])
        writes = [n for n in writes if n >= begun]
        check_and_remove(project)
        for at in writes:
            ended.append(submit(at))
            check_and_remove(project)
        orders.close()

    assert ended == [0] + [signal.SIGKILL] * len(writes)
    # The key, the call, the snapshot and the record of the first; the workload, its values and its runner.
    assert len(writes) >= (3 if first else 7)


def is_write(request: str) -> bool:
    return not request.startswith("GET") and "dryRun" not in request


def check_and_remove(project: Any) -> None:
    """Look at what a submit has left, and remove it."""
    jobs = {job.job_id: job for job in kinetic.list_jobs()}
    there = {each["metadata"]["labels"][JOB_ID] for each in workloads(project)}
    stored = {tuple(name.split("/")[:2]) for name in project.bucket.names(project.namespace)}
    # Nothing in the cluster lacks a record; in the bucket, what a day later is removed.
    assert there <= set(jobs)
    assert {part[1] for part in stored if is_job_id(part[0]) and part[0] not in jobs} <= {
        "payload.pkl"
    }
    assert all(job.status() is JobStatus.PENDING for job in jobs.values())
    remove_after_an_hour(project)
    for each in workloads(project):
        # What is left would run, and end.
        assert not WorkloadView(each).suspended
        for kind, name in needs_of(each):
            project.bed.ask("GET", project.bed.path_of(kind.lower(), project.namespace, name))
    for job in jobs.values():
        job.cleanup()
        assert not project.bucket.names(project.namespace, f"{job.job_id}/")
    assert not workloads(project)
    assert not objects(project, "pod")
    # The cluster removes what belonged to them.
    kept = {"kinetic-key", "kube-root-ca.crt"}
    for each in objects(project, "secret,configmap"):
        assert each["metadata"]["name"] in kept or each["metadata"]["ownerReferences"]
    # The next submit finds neither the key nor the runner.
    for kind in ("secret", "configmap"):
        project.bed.ask("DELETE", project.bed.path_of(kind, project.namespace))


def workloads(project: Any) -> list[Manifest]:
    """Return the workloads, without the Jobs that belong to JobSets."""
    found = objects(project, WORKLOADS)
    return [each for each in found if "ownerReferences" not in each["metadata"]]


def objects(project: Any, kinds: str) -> list[Manifest]:
    found: list[Manifest] = project.bed.objects(kinds, project.namespace)
    return found


def remove_after_an_hour(project: Any) -> None:
    """Do what a list of jobs does an hour later."""
    cluster = ApiServer(project.bed.access(project.namespace))
    store = parse_location(project.variables["KINETIC_STORE"])
    left = Workloads(cluster, store, reported=set())
    earlier = (datetime.now(UTC) - timedelta(seconds=LEFT_AGE + 60)).isoformat()
    old = [
        {**each, "metadata": {**each["metadata"], "creationTimestamp": earlier}}
        for each in left.find()
    ]
    left.remove(old, Observer(cluster, FakeStore(), None))
