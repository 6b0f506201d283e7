"""What killed submits left in a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.gke.backend import ClusterBackend
from kinetic.backends.gke.left import LEFT_AGE, Left, created_at, needs_of, stores_of
from kinetic.backends.gke.observation import observation_of
from kinetic.backends.gke.observer import Observer
from kinetic.backends.gke.workloads import Workloads
from kinetic.testing.fakes import FakeStore, a_record
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import KindNotServedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import HELD, JOB_ID
from kinetic_k8s.reading.queue import QUEUE
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.store import Location

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


class Namespace:
    """A namespace with some JobSets, on a cluster that serves no LeaderWorkerSets."""

    identity = Identity(server="https://cluster", namespace="team", context="mine")

    def __init__(self, *workloads: Manifest, there: tuple[str, ...] = ()) -> None:
        self.workloads = list(workloads)
        self.there = there
        self.asked: list[str] = []
        self.pods: list[Manifest] = []
        self.gets = 0
        self.time = "2026-11-22T12:00:00Z"

    def now(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def within(self, seconds: float) -> Namespace:
        return self

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        self.asked.append(kind)
        if kind == "LeaderWorkerSet":
            raise KindNotServedError("There are none.")
        if kind == "Pod":
            return self.pods
        return self.workloads if kind == "JobSet" else []

    def create(self, manifest: Manifest, *, dry_run: bool) -> Manifest:
        assert dry_run
        return {**manifest, "metadata": {**manifest["metadata"], "creationTimestamp": self.time}}

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        self.gets += 1
        return {} if name in self.there else None

    def delete(self, kind: str, name: str, *, uid: str) -> None:
        self.workloads = [one for one in self.workloads if one["metadata"]["uid"] != uid]


def left_in(cluster: Any, store: FakeStore | None = None) -> Left:
    observer = Observer(cluster, store or FakeStore(), None)
    return Left(
        cluster=cluster,
        workloads=Workloads(cluster),
        observer=observer,
        store=BUCKET,
        reported=set(),
    )


def test_a_workload_names_its_store_and_what_its_pods_need() -> None:
    assert stores_of(a_workload()) == {"gs://jobs"}
    assert needs_of(a_workload()) == {("Secret", "job-env"), ("ConfigMap", "kn-runner-1")}


def test_only_workloads_of_this_store_are_found_and_parts_of_them_are_not() -> None:
    other = a_workload(uid="2")
    other["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ] = ["python3", "--store", "gs://another"]
    part = a_workload(uid="3", ownerReferences=[{"kind": "JobSet", "name": "job"}])
    cluster = Namespace(a_workload(), other, part)
    left = left_in(cluster)

    assert [one["metadata"]["uid"] for one in left.find()] == ["1"]
    left.find()
    assert cluster.asked.count("LeaderWorkerSet") == 1


def test_a_list_is_used_a_second_time_for_a_few_seconds_unless_a_workload_was_deleted() -> None:
    there, now = a_workload(), [0.0]
    cluster: Any = Namespace(there)
    workloads = Workloads(cluster, clock=lambda: now[0])

    def known_after(seconds: float, *, deleted: bool = False) -> bool:
        cluster.workloads = [there]
        workloads.list()
        cluster.workloads = []
        if deleted:
            workloads.forget()
        now[0] += seconds
        found = workloads.recent()
        assert workloads.recent() == []
        return found == [there]

    assert known_after(9)
    assert not known_after(11)
    assert not known_after(1, deleted=True)


def test_what_waits_for_objects_that_nobody_creates_is_removed_after_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workload = a_workload()
    later = created_at(workload) + LEFT_AGE + 1

    complete = Namespace(workload, there=("job-env", "kn-runner-1"))
    left_in(complete).remove([workload], later)
    young = Namespace(workload, there=("kn-runner-1",))
    left_in(young).remove([workload], later - 2)
    begun, store = Namespace(workload, there=("kn-runner-1",)), FakeStore()
    claim = Claim(job_id=RECORD.job_id, attempt=1, host=0, hostname="p", pid=1, claimed_at=1.0)
    store.write(JobObjects(RECORD.job_id).claim(1, 0), encode(claim))
    left_in(begun, store).remove([workload], later)
    killed = Namespace(workload, there=("kn-runner-1",))
    left_in(killed).remove([workload], later)

    assert complete.workloads == young.workloads == begun.workloads == [workload]
    assert killed.workloads == []
    assert "Secret job-env" in caplog.text


def test_the_clock_of_the_cluster_decides_what_is_old(caplog: pytest.LogCaptureFixture) -> None:
    workload = a_workload()
    cluster = Namespace(workload)
    cluster.time = "2026-11-22T10:59:00Z"

    left_in(cluster).remove([workload], created_at(workload) + 2 * LEFT_AGE)
    assert cluster.workloads == [workload]
    cluster.time = ""
    left_in(cluster).remove([workload], created_at(workload) + 2 * LEFT_AGE)
    assert cluster.workloads == [workload]
    assert caplog.text == ""


def test_a_workload_that_its_submit_never_resumed_is_removed_but_none_of_a_queue() -> None:
    there = ("job-env", "kn-runner-1")

    def left_of(labels: dict[str, str], annotations: dict[str, str], suspend: bool) -> int:
        workload = a_workload(annotations=annotations)
        workload["metadata"]["labels"] |= labels
        workload["spec"]["suspend"] = suspend
        cluster = Namespace(workload, there=there)
        left_in(cluster).remove([workload], created_at(workload) + LEFT_AGE + 1)
        return len(cluster.workloads)

    assert left_of({}, {HELD: "true"}, True) == 0
    assert left_of({}, {HELD: "true"}, False) == 1
    assert left_of({}, {}, True) == 1
    assert left_of({QUEUE: "team"}, {HELD: "true"}, True) == 1


def test_jobs_that_run_or_have_ended_cost_one_request_together() -> None:
    running, ended = a_workload(), a_workload(uid="2")
    ended["metadata"]["labels"] = {JOB_ID: "another"}
    ended["status"] = {"conditions": [{"type": "Completed", "status": "True"}]}
    cluster = Namespace(running, ended)
    cluster.pods = [
        {
            "metadata": {"name": "pod", "uid": "3", "labels": {JOB_ID: RECORD.job_id}},
            "status": {"containerStatuses": [{"name": "kinetic", "state": {"running": {}}}]},
        }
    ]

    left_in(cluster).remove([running, ended], created_at(running) + LEFT_AGE + 1)

    assert (cluster.asked, cluster.gets) == (["Pod"], 0)


def test_one_call_looks_at_a_part_of_many_that_wait_and_the_next_one_at_others() -> None:
    many = [a_workload(uid=str(number)) for number in range(45)]
    cluster = Namespace(*many)
    later = created_at(many[0]) + LEFT_AGE + 1

    left_in(cluster).remove(many, later)
    assert len(cluster.workloads) == 25
    gone = {one["metadata"]["uid"] for one in many} - {
        one["metadata"]["uid"] for one in cluster.workloads
    }
    cluster.workloads = list(many)
    left_in(cluster).remove(many, later + 20)
    assert gone.isdisjoint(
        {one["metadata"]["uid"] for one in many}
        - {one["metadata"]["uid"] for one in cluster.workloads}
    )


def test_a_wait_removes_a_job_whose_submit_was_killed_and_seldom_looks_for_that(
    tmp_path: Path,
) -> None:
    now, passed = datetime.now(UTC), [0.0]

    def explained(*ages: timedelta) -> Namespace:
        cluster: Any = Namespace(there=("kn-runner-1",))
        cluster.time = now.isoformat()
        backend = ClusterBackend(cluster, FakeStore(), tmp_path, None, {}, clock=lambda: passed[0])
        for age in ages:
            workload = a_workload(creationTimestamp=(now - age).isoformat())
            cluster.workloads = [workload]
            backend.explain(RECORD, observation_of(workload, ()))
            passed[0] += 60
        return cluster

    hour, minute = timedelta(hours=1), timedelta(minutes=1)
    assert len(explained(hour - minute).workloads) == 1
    assert explained(hour + minute).workloads == []
    assert len(explained(hour - minute, hour + minute).workloads) == 1
