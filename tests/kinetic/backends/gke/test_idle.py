"""LeaderWorkerSets of ended jobs are deleted: they would stay, and be billed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.gke.backend import ClusterBackend
from kinetic.backends.gke.leftovers import IdleWorkloads, delete_command
from kinetic.jobs.services import Services
from kinetic.jobs.status import look
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_k8s.errors import ClusterUnreachableError, NotPermittedError
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.layout import Flag, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_servers.fakes import FakeBackend, FakeStore, a_record, create_outcome

RECORD = a_record(backend="pathways", workload="LeaderWorkerSet", k8s_name="kn-train-0123456")
ENDED = Outcome(job_id=RECORD.job_id, status="succeeded")


Clusters = Callable[..., Any]


def a_workload(store: FakeStore | None = None, *, kind: str = "LeaderWorkerSet") -> Manifest:
    container = {"name": "kinetic", "command": [Flag.STORE, str(store and store.location)]}
    template = {"spec": {"containers": [container]}}
    size = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template}}
    return {
        "kind": kind,
        "metadata": {
            "name": RECORD.k8s_name,
            "uid": "1",
            "labels": {JOB_ID: RECORD.job_id},
            "creationTimestamp": "2026-11-22T10:00:00Z",
        },
        "spec": {"template": template} if kind == "Job" else size,
    }


def ended(store: FakeStore | None = None) -> FakeStore:
    store = store or FakeStore()
    create_outcome(store, ENDED, None)
    return store


def test_a_list_of_jobs_deletes_the_workloads_of_ended_jobs(
    cluster_with: Clusters, tmp_path: Path
) -> None:
    store = FakeStore()
    cluster = cluster_with(a_workload(store))
    backend = ClusterBackend(cluster, store, tmp_path, None, {})

    backend.tidy([], recorded={RECORD.job_id})
    assert cluster.deleted == []
    ended(store)
    backend.tidy([], recorded={RECORD.job_id})
    assert cluster.deleted == ["1"]


def test_a_workload_is_released_once_after_its_outcome(
    cluster_with: Clusters, tmp_path: Path
) -> None:
    cluster = cluster_with(a_workload())
    backend = ClusterBackend(cluster, ended(), tmp_path, None, {})

    backend.tidy([a_record(workload="JobSet")])
    assert cluster.requests == []
    backend.tidy([RECORD])
    backend.tidy([RECORD])

    assert (cluster.deleted, cluster.requests) == (["1"], ["get LeaderWorkerSet"])


@pytest.mark.parametrize(("status", "deleted"), [("cancelled", ["1"]), ("succeeded", [])])
@pytest.mark.parametrize("looked_at", ["the job", "the list"])
def test_a_cancelled_job_whose_cancel_was_killed_is_deleted_later(
    cluster_with: Clusters, tmp_path: Path, status: str, deleted: list[str], looked_at: str
) -> None:
    store = FakeStore()
    record = replace(RECORD, workload="Job")
    cluster = cluster_with(a_workload(store, kind="Job"))
    services = Services(store, ClusterBackend(cluster, store, tmp_path, None, {}))
    create_outcome(store, replace(ENDED, status=status), None)

    if looked_at == "the job":
        look(record, services)
    else:
        services.backend.tidy([record], recorded={record.job_id})

    assert cluster.deleted == deleted


def test_the_backend_is_asked_to_release_a_job_only_after_its_end() -> None:
    released = []

    class Releasing(FakeBackend):
        def tidy(self, ended: Sequence[JobRecord], **_: Any) -> None:
            released.extend(record.job_id for record in ended)

    store = FakeStore()
    services = Services(store, Releasing(store))
    look(RECORD, services)
    assert released == []
    ended(store)
    look(RECORD, services)

    assert released == [RECORD.job_id]


def test_a_forged_outcome_deletes_nothing_even_if_the_bucket_is_trusted(
    cluster_with: Clusters, tmp_path: Path
) -> None:
    store, cluster = FakeStore(), cluster_with(a_workload())
    signer = KeySigner(KeyFile(tmp_path), trusting=lambda: True)
    name = JobObjects(RECORD.job_id).outcome
    signed = signer.sign(encode(ENDED), name)

    for outcome, deleted in ((encode(ENDED), []), (signed, ["1"])):
        store.write(name, outcome)
        IdleWorkloads(cluster, signer).end(store, RECORD.job_id, RECORD.k8s_name)
        assert cluster.deleted == deleted


def test_a_workload_is_deleted_after_an_outage_of_the_store(cluster_with: Clusters) -> None:
    cluster, store = cluster_with(a_workload()), ended()
    store.journal.refuse("read *", StoreUnavailableError("503"))
    idle = IdleWorkloads(cluster, None, clock=lambda: 100.0)

    for deleted in ([], ["1"]):
        idle.end(store, RECORD.job_id, RECORD.k8s_name)
        assert cluster.deleted == deleted


def test_a_workload_is_deleted_after_a_deletion_was_interrupted(cluster_with: Clusters) -> None:
    cluster = cluster_with(a_workload(), errors=[KeyboardInterrupt()])
    idle = IdleWorkloads(cluster, None)

    with pytest.raises(KeyboardInterrupt):
        idle.end(ended(), RECORD.job_id, RECORD.k8s_name)
    idle.end(ended(), RECORD.job_id, RECORD.k8s_name)

    assert cluster.deleted == ["1"]


OUTAGE = ClusterUnreachableError("It did not respond.")


@pytest.mark.parametrize(
    "error", [OUTAGE, NotPermittedError("Forbidden (403).")], ids=["outage", "forbidden"]
)
def test_a_failed_deletion_is_reported_once_with_the_command_and_retried_later(
    cluster_with: Clusters,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    cluster, now = cluster_with(a_workload(), errors=[error, error]), [100.0]
    idle = IdleWorkloads(cluster, None, clock=lambda: now[0])

    with caplog.at_level(logging.WARNING):
        for later in (0, 1, 60, 60):
            now[0] += later
            assert cluster.deleted == []
            idle.end(ended(), RECORD.job_id, RECORD.k8s_name)

    assert cluster.deleted == ["1"]
    command = delete_command("LeaderWorkerSet", RECORD.k8s_name, cluster.identity)
    assert caplog.text.count(command) == 1
    assert command.endswith("-n team --context 'the context'")
