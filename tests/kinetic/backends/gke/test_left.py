"""Workloads that killed submits left in a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kinetic.backends.gke.leftovers import (
    Workloads,
)
from kinetic.backends.gke.observation import Observer
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import HELD, JOB_ID, JOBSET_NAME
from kinetic_k8s.reading.causes import QUEUE
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.store import Location
from kinetic_servers.fakes import FakeStore, a_record

BUCKET = Location("gs", "jobs")
RECORD = a_record(backend="gke")


def a_workload(**metadata: Any) -> Manifest:
    container = {
        "name": "kinetic",
        "command": ["python3", "/app/runner.py", "--store", str(BUCKET)],
        "envFrom": [{"secretRef": {"name": "job-env"}}, {"secretRef": {"name": "users-own"}}],
    }
    pod = {"containers": [container], "volumes": [{"configMap": {"name": "kn-runner-1"}}]}
    own = {"name": "job", "uid": "1", "creationTimestamp": "2026-11-22T10:00:00Z"}
    return {
        "kind": "JobSet",
        "metadata": {**own, "labels": {JOB_ID: RECORD.job_id}, **metadata},
        "spec": {
            "replicatedJobs": [
                {"name": "worker", "template": {"spec": {"template": {"spec": pod}}}}
            ]
        },
    }


SECRET = {"kind": "Secret", "metadata": {"name": "job-env"}}
RUNNER = {"kind": "ConfigMap", "metadata": {"name": "kn-runner-1"}}
POD = {
    "kind": "Pod",
    "metadata": {
        "name": "pod",
        "uid": "3",
        "labels": {JOB_ID: RECORD.job_id, JOBSET_NAME: "job"},
    },
    "status": {"containerStatuses": [{"name": "kinetic", "state": {"running": {}}}]},
}
Clusters = Callable[..., Any]


HOUR = "2026-11-22T11:00:01Z"
"""An hour and a second after the workloads were created."""


def remove_left(
    cluster: Any, workloads: Sequence[Manifest], store: FakeStore | None = None
) -> None:
    observer = Observer(cluster, store or FakeStore(), None)
    Workloads(cluster, BUCKET, reported=set()).remove(workloads, observer)


def test_workloads_of_other_stores_and_parts_of_workloads_are_not_found(
    cluster_with: Clusters,
) -> None:
    other = a_workload(uid="2")
    pod = other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["python3", "--store", "gs://another"]
    part = a_workload(uid="3", ownerReferences=[{"kind": "JobSet", "name": "job"}])
    cluster = cluster_with(a_workload(), other, part, not_served=["LeaderWorkerSet"])
    left = Workloads(cluster, BUCKET)

    assert [one["metadata"]["uid"] for one in left.find()] == ["1"]
    left.find()
    assert cluster.requests.count("list LeaderWorkerSet") == 1


def test_a_list_is_reused_for_seconds_unless_a_workload_was_deleted(
    cluster_with: Clusters,
) -> None:
    there, now = a_workload(), [0.0]
    cluster = cluster_with()
    workloads = Workloads(cluster, BUCKET, clock=lambda: now[0])

    def known_after(seconds: float, *, deleted: bool = False) -> bool:
        cluster.objects = [there]
        workloads.list()
        cluster.objects = []
        if deleted:
            workloads.forget()
        now[0] += seconds
        found = workloads.recent()
        assert workloads.recent() == []
        return found == [there]

    assert known_after(9)
    assert not known_after(11)
    assert not known_after(1, deleted=True)


@pytest.mark.parametrize(
    ("objects", "time", "claimed", "removed"),
    [
        ([RUNNER], HOUR, False, True),
        ([RUNNER], "2026-11-22T10:59:59Z", False, False),
        ([RUNNER], HOUR, True, False),
        ([RUNNER, SECRET], HOUR, False, False),
    ],
    ids=["killed", "less than an hour old", "begun", "complete"],
)
def test_a_workload_whose_objects_are_missing_is_removed_after_an_hour(
    cluster_with: Clusters,
    caplog: pytest.LogCaptureFixture,
    objects: list[Manifest],
    time: str,
    claimed: bool,
    removed: bool,
) -> None:
    workload, store = a_workload(), FakeStore()
    if claimed:
        claim = Claim(job_id=RECORD.job_id, attempt=1, host=0, hostname="p", pid=1, claimed_at=1.0)
        store.write(JobObjects(RECORD.job_id).claim(1, 0), encode(claim))
    cluster = cluster_with(workload, *objects, time=time)

    remove_left(cluster, [workload], store)

    assert (cluster.deleted == ["1"]) is removed
    assert ("Secret job-env" in caplog.text) is removed


@pytest.mark.parametrize(
    ("labels", "annotations", "suspend", "removed"),
    [
        ({}, {HELD: "true"}, True, True),
        ({}, {HELD: "true"}, False, False),
        ({}, {}, True, False),
        ({QUEUE: "team"}, {HELD: "true"}, True, False),
    ],
)
def test_a_workload_that_its_submit_never_resumed_is_removed_unless_it_is_in_a_queue(
    cluster_with: Clusters,
    labels: dict[str, str],
    annotations: dict[str, str],
    suspend: bool,
    removed: bool,
) -> None:
    workload = a_workload(annotations=annotations)
    workload["metadata"]["labels"] |= labels
    workload["spec"]["suspend"] = suspend
    cluster = cluster_with(workload, SECRET, RUNNER)

    remove_left(cluster, [workload])

    assert (cluster.deleted == ["1"]) is removed


def test_jobs_that_run_or_have_ended_cost_one_request_together(cluster_with: Clusters) -> None:
    running, ended = a_workload(), a_workload(uid="2")
    ended["metadata"]["labels"] = {JOB_ID: "another"}
    ended["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
    cluster = cluster_with(running, ended, POD)

    remove_left(cluster, [running, ended])

    assert cluster.requests == ["list Pod"]


def test_a_worker_of_a_batch_that_its_submit_left_is_removed_although_another_one_runs(
    cluster_with: Clusters,
) -> None:
    running, left = a_workload(), a_workload(name="job-2", uid="2")
    cluster = cluster_with(running, left, POD)

    remove_left(cluster, [running, left])

    assert cluster.deleted == ["2"]
