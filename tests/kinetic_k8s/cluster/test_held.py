"""A workload that its submit creates suspended, and one that is removed before its submit has ended."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster import Identity
from kinetic_k8s.cluster.creation import check_workload, create_workload
from kinetic_k8s.errors import ClusterError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import HELD, JOB_ID
from kinetic_k8s.manifests.pod import PodSpec
from kinetic_k8s.reading.diagnosis import diagnosis_of

QUEUE = "kueue.x-k8s.io/queue-name"
SPEC = JobSpec(
    name="job",
    pod=PodSpec(
        job_id="j-1", accelerator=parse_accelerator("cpu"), image="image", command=("true",)
    ),
)


class Server:
    """A cluster that stores one Job."""

    identity = Identity(server="https://cluster", namespace="team")

    def __init__(self, **labels: str) -> None:
        self.labels = labels
        self.job: Manifest | None = None
        self.created: Manifest | None = None
        self.removed = False

    def within(self, seconds: float) -> Server:
        return self

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        if manifest["kind"] == "Job":
            manifest["metadata"] |= {"uid": "1"}
            manifest["metadata"]["labels"] |= self.labels
            self.created = self.job = manifest
        return manifest

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        return self.job if kind == "Job" and not self.removed else None

    def patch(self, kind: str, name: str, change: Manifest, **how: object) -> Manifest | None:
        assert how == {"merge": "plain"}
        if self.job is None or self.removed:
            return None
        annotations = {
            **self.job["metadata"]["annotations"],
            **change["metadata"]["annotations"],
        }
        kept = {key: value for key, value in annotations.items() if value is not None}
        return {
            **self.job,
            "metadata": {**self.job["metadata"], "annotations": kept},
            "spec": {**self.job["spec"], **change.get("spec", {})},
        }

    def delete(self, kind: str, name: str, *, uid: str) -> None:
        self.job = None


def submitted(server: Any, *, step: float = 1.0) -> Manifest:
    """Create the Job, with *step* seconds between two looks at the clock."""
    clock = itertools.count(0.0, step)
    return create_workload(server, SPEC, environment={"A": "1"}, clock=lambda: next(clock))


def test_the_patch_that_resumes_a_held_job_removes_its_mark() -> None:
    server = Server()

    job = submitted(server)

    assert server.created is not None
    assert server.created["metadata"]["annotations"] == {HELD: "true"}
    assert server.created["spec"]["suspend"] is True
    assert (job["metadata"]["annotations"], job["spec"]["suspend"]) == ({}, False)
    found = diagnosis_of(server.created, [], [])
    assert found is not None
    assert "submit is not complete" in found.reason


def test_a_job_that_a_webhook_queued_stays_suspended_without_the_mark() -> None:
    job = submitted(Server(**{QUEUE: "team"}))

    assert (job["metadata"]["annotations"], job["spec"]["suspend"]) == ({}, True)


@pytest.mark.parametrize("step", [1.0, 0.0])
def test_a_workload_that_was_removed_meanwhile_fails_its_submit(step: float) -> None:
    server: Any = Server()
    server.removed = True
    if step:
        with pytest.raises(ClusterError, match="removed before its submit ended"):
            submitted(server)
        return
    # A machine that slept: quick at first, then an hour later.
    times = iter([0.0, 0.1, 3700.0])
    with pytest.raises(ClusterError, match="removed before its submit ended"):
        create_workload(server, SPEC, environment={"A": "1"}, clock=lambda: next(times))


def test_a_workload_is_checked_once_and_again_if_more_than_its_job_differs() -> None:
    asked: list[Manifest] = []

    class Checking(Server):
        identity = Identity(server="https://cluster", namespace="checked")

        def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
            assert dry_run
            asked.append(manifest)
            if len(asked) == 1:
                raise ClusterError("Not now.")
            return manifest

    server: Any = Checking()
    with pytest.raises(ClusterError):  # What was refused is checked again.
        check_workload(server, SPEC)
    for job_id in ("j-1", "j-2"):
        check_workload(server, replace(SPEC, pod=replace(SPEC.pod, job_id=job_id)))
    assert len(asked) == 2
    check_workload(server, replace(SPEC, retries=1))

    assert len(asked) == 3
    check_workload(server, SPEC, environment=True, runner=True)
    assert [each["kind"] for each in asked[4:]] == ["Secret", "ConfigMap"]


def test_a_quick_submit_marks_nothing() -> None:
    job = submitted(Server(), step=0.01)

    assert HELD not in (job["metadata"].get("annotations") or {})
    assert job["metadata"]["labels"][JOB_ID] == "j-1"
