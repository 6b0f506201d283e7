"""LeaderWorkerSets of jobs that have ended: they would stay, and be billed."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kinetic.backends.gke.backend import ClusterBackend
from kinetic.backends.gke.idle import IdleWorkloads, delete_command
from kinetic.backends.gke.observation import observation_of
from kinetic.jobs.services import Services
from kinetic.jobs.status import View, look
from kinetic.jobs.wait import Pace
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic.testing.fakes import FakeBackend, FakeStore, a_record, create_outcome
from kinetic_k8s.cluster import Identity
from kinetic_k8s.errors import ClusterUnreachableError, NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.layout import Flag, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome

RECORD = a_record(backend="pathways", workload="LeaderWorkerSet", k8s_name="kn-train-0123456")
ENDED = Outcome(job_id=RECORD.job_id, status="succeeded")


class Serving:
    """A cluster with the LeaderWorkerSet of a job."""

    identity = Identity(server="https://cluster", namespace="team", context="the context")

    def __init__(
        self, store: FakeStore | None = None, *errors: Exception, kind: str = "LeaderWorkerSet"
    ) -> None:
        self.kind = kind
        container = {"name": "kinetic", "command": [Flag.STORE, str(store and store.location)]}
        template = {"spec": {"containers": [container]}}
        self.workload = {
            "kind": kind,
            "metadata": {
                "name": RECORD.k8s_name,
                "uid": "1",
                "labels": {JOB_ID: RECORD.job_id},
                "creationTimestamp": "2026-11-22T10:00:00Z",
            },
            "spec": {"template": template}
            if kind == "Job"
            else {
                "replicas": 1,
                "leaderWorkerTemplate": {"size": 1, "workerTemplate": template},
            },
        }
        self.errors = list(errors)
        self.deleted: list[str] = []
        self.asked = 0

    def now(self) -> datetime:
        return datetime(2026, 11, 22, 10, tzinfo=UTC)

    def within(self, seconds: float) -> Serving:
        return self

    def list(self, kind: str, **selectors: object) -> list[Manifest]:
        return [self.workload] if kind == self.kind and not self.deleted else []

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest | None:
        self.asked += 1
        return self.workload if kind == self.kind and not self.deleted else None

    def delete(self, kind: str, name: str, *, uid: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.deleted.append(uid)


def ended(store: FakeStore | None = None) -> FakeStore:
    store = store or FakeStore()
    create_outcome(store, ENDED, None)
    return store


def test_a_list_of_jobs_deletes_what_has_its_outcome_and_nothing_else(tmp_path: Path) -> None:
    store = FakeStore()
    cluster: Any = Serving(store)
    backend = ClusterBackend(cluster, store, tmp_path, None, {})

    backend.collect_left({RECORD.job_id})
    assert cluster.deleted == []
    ended(store)
    backend.collect_left({RECORD.job_id})
    assert cluster.deleted == ["1"]


@pytest.mark.parametrize("kind", ["Job", "LeaderWorkerSet"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_job_without_machines_ends_what_holds_them_after_another_job(
    tmp_path: Path, kind: str, begun: bool
) -> None:
    store = FakeStore()
    cluster: Any = Serving(store)
    times = [100.0]
    backend = ClusterBackend(cluster, store, tmp_path, None, {}, clock=lambda: times[0])
    waiting = a_record(job_id="v5p-8-train-20261122-101501-7654321", workload=kind)
    labels = {**cluster.workload["metadata"]["labels"], JOB_ID: waiting.job_id}
    metadata = {**cluster.workload["metadata"], "name": waiting.k8s_name, "labels": labels}
    workload = {**cluster.workload, "kind": kind, "metadata": metadata}
    ready = {"type": "PodScheduled", "status": "True"}
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}

    def explain(condition: dict[str, str]) -> list[str]:
        pod = {"metadata": {**metadata, "name": "p"}, "status": {"conditions": [condition]}}
        backend.explain(waiting, observation_of(workload, [pod], begun=begun))
        return cluster.deleted

    explain(refused)
    ended(store)
    assert explain(refused) == [], "within a minute, it does not look again"
    times[0] += 60
    assert explain(ready) == []
    assert explain(refused) == ["1"]


def test_an_outcome_that_was_found_releases_the_workload_once(tmp_path: Path) -> None:
    store = ended()
    cluster: Any = Serving()
    backend = ClusterBackend(cluster, store, tmp_path, None, {})

    backend.release(a_record(workload="JobSet"))
    assert cluster.asked == 0
    backend.release(RECORD)
    backend.release(RECORD)

    assert (cluster.deleted, cluster.asked) == (["1"], 1)


@pytest.mark.parametrize(("status", "deleted"), [("cancelled", ["1"]), ("succeeded", [])])
@pytest.mark.parametrize("looked_at", ["the job", "the list"])
def test_a_look_at_a_cancelled_job_deletes_what_its_killed_cancel_left(
    tmp_path: Path, status: str, deleted: list[str], looked_at: str
) -> None:
    store = FakeStore()
    record = replace(RECORD, workload="Job")
    cluster: Any = Serving(store, kind="Job")
    services = Services(store, ClusterBackend(cluster, store, tmp_path, None, {}))
    create_outcome(store, replace(ENDED, status=status), None)

    if looked_at == "the job":
        look(record, services)
    else:
        services.backend.collect_left({record.job_id}, {record.job_id})

    assert cluster.deleted == deleted


def test_a_look_at_an_ended_job_lets_the_backend_free_what_it_holds() -> None:
    released = []

    class Releasing(FakeBackend):
        def release(self, record: JobRecord, *, cancelled: bool = False) -> None:
            released.append(record.job_id)

    store = FakeStore()
    services = Services(store, Releasing(store))
    look(RECORD, services)
    assert released == []
    ended(store)
    look(RECORD, services)

    assert released == [RECORD.job_id]


def test_a_forged_outcome_deletes_nothing_even_if_the_bucket_is_trusted(tmp_path: Path) -> None:
    store, cluster = FakeStore(), Serving()
    signer = KeySigner(KeyFile(tmp_path), trusting=lambda: True)
    name = JobObjects(RECORD.job_id).outcome
    forged, written = encode(ENDED), signer.sign(encode(ENDED), name)

    def end() -> list[str]:
        there: Any = cluster
        IdleWorkloads(there, store, signer).end(RECORD.job_id, RECORD.k8s_name)
        return cluster.deleted

    store.write(name, forged)
    assert end() == []
    store.write(name, written)
    assert end() == ["1"]


def test_an_outage_of_the_store_does_not_delay_the_end_of_a_workload() -> None:
    class Failing(FakeStore):
        errors: ClassVar = [StoreUnavailableError("503")]

        def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
            if self.errors:
                raise self.errors.pop()
            return super().read(name, start=start, end=end)

    cluster: Any = Serving()
    idle = IdleWorkloads(cluster, ended(Failing()), None, clock=lambda: 100.0)
    idle.end(RECORD.job_id, RECORD.k8s_name)
    assert cluster.deleted == []
    idle.end(RECORD.job_id, RECORD.k8s_name)

    assert cluster.deleted == ["1"]


def test_a_failed_deletion_is_tried_again_and_then_reported_with_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def end(*errors: Exception) -> tuple[list[str], list[float]]:
        cluster: Any = Serving(None, *errors)
        pauses: list[float] = []
        idle = IdleWorkloads(cluster, ended(), None, pause=pauses.append, clock=lambda: 100.0)
        idle.end(RECORD.job_id, RECORD.k8s_name)
        idle.end(RECORD.job_id, RECORD.k8s_name)
        return cluster.deleted, pauses

    outage = ClusterUnreachableError("It did not respond.")
    with caplog.at_level(logging.WARNING):
        deleted, pauses = end(outage, outage)
        assert (deleted, len(pauses), caplog.text) == (["1"], 2, "")
        assert end(outage, outage, outage) == ([], pauses)
        assert end(NotPermittedError("Forbidden (403).")) == ([], [])
    command = delete_command("LeaderWorkerSet", RECORD.k8s_name, Serving.identity)
    assert caplog.text.count(command) == 2
    assert command.endswith("-n team --context 'the context'")


def test_a_job_whose_end_no_watch_shows_is_looked_at_after_a_share_of_its_time() -> None:
    now = 0.0
    pace = Pace(clock=lambda: now)

    def looks(seconds: float, *, kind: str, begun: bool) -> list[float]:
        """Return the pauses of a wait for that long."""
        nonlocal now
        seen = observation_of(Serving(kind=kind).workload, (), begun=begun)
        pauses, until = [], now + seconds
        while now < until:
            pauses.append(pace.after(View(seen.status, seen=seen)))
            now += pauses[-1]
        return pauses

    pending = looks(3600, kind=RECORD.workload, begun=False)
    running = looks(3600, kind=RECORD.workload, begun=True)
    of_a_job = looks(3600, kind="Job", begun=True)

    assert set(pending) == set(of_a_job) == {30.0}
    assert (running[0], running[-1]) == (1.0, 30.0)
    begun = [sum(running[:n]) for n in range(len(running))]
    assert all(each <= max(1.0, at / 20) + 0.01 for each, at in zip(running, begun, strict=True))
    assert len(running) < 250
