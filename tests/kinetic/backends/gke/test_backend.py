"""`ClusterBackend` and a cluster that refuses or lacks something."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Launch
from kinetic.backends.gke.backend import ClusterBackend
from kinetic.backends.gke.checks import check_request
from kinetic.backends.gke.forms import form_on, warnings_of
from kinetic.backends.gke.job_spec import ClusterEnvironment
from kinetic.backends.gke.observation import observation_of
from kinetic.data import Data
from kinetic.errors import InvalidRequestError, SubmitError
from kinetic.submit.request import JobRequest
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.creation import Runner
from kinetic_k8s.errors import (
    ClusterError,
    ConflictError,
    InvalidManifestError,
    NotPermittedError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.manifests.workload import Form
from kinetic_k8s.reading.causes import QUEUE
from kinetic_payload.stores.store import Location
from kinetic_servers.fakes import FakeStore, a_record, a_request

Clusters = Callable[..., Any]
BUCKET = Location("gs", "jobs")
RECORD = a_record(backend="gke", accelerator="tpu-v5p-8", workload="JobSet", hosts=2)


def request_with(**options: object) -> JobRequest:
    values = {"accelerator": "v5p-8", "container_image": "image:1", "backend": "gke", **options}
    return a_request(project="p", **values)


@pytest.mark.parametrize("path", ["/kinetic/data/d0", "/kinetic/workspace/data"])
def test_a_volume_inside_a_folder_of_the_pod_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="/kinetic/") as caught:
        check_request(request_with(volumes={path: Data("gs://photos/2026")}), BUCKET)

    assert caught.value.hint


def test_a_store_that_is_a_folder_is_refused() -> None:
    check_request(request_with(), BUCKET)
    with pytest.raises(InvalidRequestError, match="Pods cannot reach the store /me/store"):
        check_request(request_with(), Location("folder", "/me/store"))


def a_jobset(*conditions: str, job_id: str = RECORD.job_id) -> Manifest:
    true = [{"type": each, "status": "True"} for each in conditions]
    return {
        "kind": "JobSet",
        "metadata": {"name": RECORD.k8s_name, "uid": "1", "labels": {JOB_ID: job_id}},
        "spec": {"replicatedJobs": []},
        "status": {"conditions": true},
    }


def a_backend(cluster: Any, folder: Path) -> ClusterBackend:
    return ClusterBackend(cluster, FakeStore(), folder, None, {})


def forbidden() -> NotPermittedError:
    return NotPermittedError("Could not delete it: forbidden (403).")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_refused_cancel_names_the_accelerator_that_is_still_billed(
    cluster_with: Clusters, tmp_path: Path, dry_run: bool
) -> None:
    def refused(jobset: Manifest) -> str:
        cluster = cluster_with(jobset, errors=[forbidden()])
        backend = a_backend(cluster, tmp_path)
        with pytest.raises(NotPermittedError, match="403") as caught:
            backend.stop(RECORD, timeout=1, poll_interval=1, dry_run=dry_run)
        return caught.value.message

    assert "tpu-v5p-8 is still billed" in refused(a_jobset())
    assert "billed" not in refused(a_jobset("Completed"))


@pytest.mark.parametrize(
    ("jobset", "error"),
    [
        (a_jobset(job_id="another job of the same name"), forbidden()),
        (a_jobset(), InvalidManifestError("The webhook does not support dry run (400).")),
        (a_jobset(), ConflictError("It has another uid.")),
    ],
    ids=["another job", "no dry run", "replaced"],
)
def test_other_errors_of_a_dry_run_do_not_prevent_a_cancel(
    cluster_with: Clusters, tmp_path: Path, jobset: Manifest, error: ClusterError
) -> None:
    backend = a_backend(cluster_with(jobset, errors=[error]), tmp_path)
    backend.stop(RECORD, timeout=1, poll_interval=1, dry_run=True)


def test_a_job_whose_kind_is_no_longer_served_is_not_created_as_another_kind(
    cluster_with: Clusters, tmp_path: Path
) -> None:
    runner = Runner(digest="0" * 64, name="r.py", content=b"")
    launch = Launch(
        record=RECORD,
        record_digest="0" * 64,
        request=request_with(),
        environment=ClusterEnvironment("image:1", runner=runner),
    )

    with pytest.raises(SubmitError, match="does not serve JobSet"):
        a_backend(cluster_with(not_served=["JobSet"]), tmp_path).start(launch)


@pytest.mark.parametrize(
    ("served", "form"),
    [(("JobSet", "LeaderWorkerSet"), "jobset"), (("LeaderWorkerSet",), "indexed-job")],
)
def test_the_cluster_is_asked_what_it_serves_and_a_job_that_cannot_restart_has_a_warning(
    cluster_with: Clusters, served: tuple[str, ...], form: Form
) -> None:
    found = form_on(cluster_with(served=served), parse_accelerator("v5p-8"), "gke")

    assert found == form
    assert bool(warnings_of(found)) is (form == "indexed-job")


QUEUED = {
    "kind": "Workload",
    "metadata": {"name": "w", "uid": "2", "ownerReferences": [{"uid": "1"}]},
    "spec": {"queueName": "research"},
}
NO_PODS = {
    "kind": "Event",
    "metadata": {"creationTimestamp": "2026-11-22T10:15:00Z"},
    "involvedObject": {"kind": "Job", "name": "kn-train"},
    "reason": "FailedCreate",
    "message": "Error creating: exceeded quota: none",
}


@pytest.mark.parametrize(
    ("admitted", "expected", "requests"),
    [
        (True, "exceeded quota: none", ["list Workload", "list Event"]),
        (False, "waits in the queue 'research'", ["list Workload", "list LocalQueue"]),
    ],
)
def test_a_queued_job_without_pods_is_explained_with_two_requests(
    cluster_with: Clusters, tmp_path: Path, admitted: bool, expected: str, requests: list[str]
) -> None:
    state = {"status": str(admitted), "type": "Admitted"}
    short = {"status": str(admitted), "type": "QuotaReserved", "message": "insufficient quota"}
    queued = {**QUEUED, "status": {"conditions": [state, short]}}
    created, labels = datetime.now(UTC).isoformat(), {QUEUE: "research"}
    job = {
        "metadata": {
            "name": "kn-train",
            "uid": "1",
            "labels": labels,
            "creationTimestamp": created,
        },
        "spec": {"suspend": not admitted},
    }
    cluster = cluster_with(queued, NO_PODS, served=["Workload"], one_namespace=True)
    backend = a_backend(cluster, tmp_path)

    for first in (["list Workload"], []):  # The first look asks for those of all namespaces, too.
        cluster.requests.clear()
        assert expected in backend.explain(RECORD, observation_of(job, [])).reason
        assert cluster.requests == [*first, *requests]
