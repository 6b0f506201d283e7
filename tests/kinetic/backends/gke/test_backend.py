"""`ClusterBackend` and a cluster that refuses or lacks something."""

from __future__ import annotations

from collections.abc import Sequence
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
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic.testing.fakes import FakeStore, a_record
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster import Identity
from kinetic_k8s.cluster.creation import Runner
from kinetic_k8s.errors import (
    ClusterError,
    ConflictError,
    InvalidManifestError,
    KindNotServedError,
    NotPermittedError,
    UnsupportedWorkloadError,
)
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.labels import JOB_ID
from kinetic_k8s.manifests.workload import Form
from kinetic_k8s.reading.queue import QUEUE
from kinetic_payload.stores.store import Location

BUCKET = Location("gs", "jobs")
RECORD = a_record(backend="gke", accelerator="tpu-v5p-8", workload="JobSet", hosts=2)


def train() -> None: ...


def a_request(tmp_path: Path, **options: object) -> JobRequest:
    values = {"accelerator": "v5p-8", "container_image": "image:1", "backend": "gke", **options}
    checked = check_options(**values)
    environ = {"KINETIC_KUBE_CONTEXT": "mine"}
    settings = resolve(checked.settings, environ=environ, user_home=tmp_path)
    return request_of(checked, train, settings, environ={}, cwd=tmp_path)


@pytest.mark.parametrize("path", ["/kinetic/data/d0", "/kinetic/workspace/data"])
def test_a_volume_inside_a_folder_of_the_pod_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidRequestError, match="/kinetic/") as caught:
        check_request(a_request(tmp_path, volumes={path: Data("gs://photos/2026")}), BUCKET)

    assert caught.value.hint


def test_a_store_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    check_request(a_request(tmp_path), BUCKET)
    with pytest.raises(InvalidRequestError, match="Pods cannot reach the store /me/store"):
        check_request(a_request(tmp_path), Location("folder", "/me/store"))


class Refusing:
    """A cluster with one JobSet, which may not be deleted."""

    identity = Identity(server="https://cluster", namespace="team")

    def __init__(
        self,
        *conditions: str,
        served: tuple[str, ...] = (),
        job_id: str = RECORD.job_id,
        error: ClusterError | None = None,
    ) -> None:
        self.conditions = conditions
        self.served = served
        self.job_id = job_id
        self.error = error or NotPermittedError("Could not delete it: forbidden (403).")

    def within(self, seconds: float) -> Refusing:
        return self

    def now(self) -> datetime:
        return datetime.now(UTC)

    def serves(self, kind: str) -> bool:
        return kind in self.served

    def create(self, manifest: Manifest, **how: object) -> Manifest:
        raise KindNotServedError(f"The cluster does not serve {manifest['kind']}.")

    def get(self, kind: str, name: str, *, brief: bool = False) -> Manifest:
        true = [{"type": each, "status": "True"} for each in self.conditions]
        return {
            "metadata": {"name": name, "uid": "1", "labels": {JOB_ID: self.job_id}},
            "spec": {"replicatedJobs": []},
            "status": {"conditions": true},
        }

    def delete(self, kind: str, name: str, **how: object) -> bool:
        raise self.error


def a_backend(cluster: Any, folder: Path) -> ClusterBackend:
    return ClusterBackend(cluster, FakeStore(), folder, None, {})


@pytest.mark.parametrize("act", ["check_stop", "stop"])
def test_a_refused_cancel_names_the_accelerator_that_is_still_billed(
    tmp_path: Path, act: str
) -> None:
    limits = {"timeout": 1, "poll_interval": 1} if act == "stop" else {}

    def refused(cluster: Any) -> str:
        with pytest.raises(NotPermittedError, match="403") as caught:
            getattr(a_backend(cluster, tmp_path), act)(RECORD, **limits)
        return caught.value.message

    assert "tpu-v5p-8 is still billed" in refused(Refusing())
    assert "billed" not in refused(Refusing("Completed"))


@pytest.mark.parametrize(
    "cluster",
    [
        Refusing(job_id="another job of the same name"),
        Refusing(error=InvalidManifestError("The webhook does not support dry run (400).")),
        Refusing(error=ConflictError("It has another uid.")),
    ],
    ids=["another job", "no dry run", "replaced"],
)
def test_other_errors_of_a_dry_run_do_not_prevent_a_cancel(tmp_path: Path, cluster: Any) -> None:
    a_backend(cluster, tmp_path).check_stop(RECORD)


def test_a_job_whose_kind_is_no_longer_served_is_not_created_as_another_kind(
    tmp_path: Path,
) -> None:
    runner = Runner(digest="0" * 64, name="r.py", content=b"")
    launch = Launch(
        record=RECORD,
        request=a_request(tmp_path),
        environment=ClusterEnvironment("image:1", runner=runner),
    )

    with pytest.raises(SubmitError, match="does not serve JobSet"):
        a_backend(Refusing(), tmp_path).start(launch)


@pytest.mark.parametrize(
    ("accelerator", "semantics", "served", "form"),
    [
        ("cpu", "gke", (), "job"),
        ("v5p-8", "gke", ("JobSet",), "jobset"),
        ("v5p-8", "gke", ("LeaderWorkerSet",), "indexed-job"),
        ("v5p-8", "pathways", ("JobSet", "LeaderWorkerSet"), "pathways"),
        ("v5p-8", "pathways", ("LeaderWorkerSet",), "pathways-lws"),
        ("tpu-v5litepod-2x4", "pathways", ("JobSet",), "pathways"),
        ("v5p-8", "pathways", (), None),
    ],
)
def test_the_form_of_a_job_follows_from_the_kinds_that_the_cluster_serves(
    accelerator: str, semantics: Any, served: tuple[str, ...], form: Form | None
) -> None:
    cluster: Any = Refusing(served=served)
    parsed = parse_accelerator(accelerator)

    if form is None:
        with pytest.raises(UnsupportedWorkloadError, match="JobSet") as caught:
            form_on(cluster, parsed, semantics)
        assert caught.value.hint
    else:
        assert form_on(cluster, parsed, semantics) == form
        assert bool(warnings_of(form)) is (form == "indexed-job")


class Queueing(Refusing):
    """A cluster whose queue has admitted a job or not, and whose namespace refuses the job's pods."""

    def __init__(self, *, admitted: bool) -> None:
        super().__init__(served=("Workload",))
        state = {"status": str(admitted), "type": "Admitted"}
        short = {"status": str(admitted), "type": "QuotaReserved", "message": "insufficient quota"}
        self.requests: list[str] = []
        self.objects: dict[str, Manifest] = {
            "Workload": {
                "metadata": {"name": "w", "uid": "2", "ownerReferences": [{"uid": "1"}]},
                "spec": {"queueName": "research"},
                "status": {"conditions": [state, short]},
            },
            "Event": {
                "metadata": {"creationTimestamp": "2026-11-22T10:15:00Z"},
                "involvedObject": {"kind": "Job", "name": "kn-train"},
                "reason": "FailedCreate",
                "message": "Error creating: exceeded quota: none",
            },
        }

    def list(
        self, kind: str, *, everywhere: bool = False, **selected: object
    ) -> Sequence[Manifest]:
        self.requests.append(kind)
        if everywhere:
            raise NotPermittedError("Could not list them: forbidden (403).")
        return [self.objects[kind]] if kind in self.objects else []


@pytest.mark.parametrize(
    ("admitted", "expected", "requests"),
    [
        (True, "exceeded quota: none", ["Workload", "Event"]),
        (False, "waits in the queue 'research'", ["Workload", "LocalQueue"]),
    ],
)
def test_a_queued_job_without_pods_is_explained_with_two_requests(
    tmp_path: Path, admitted: bool, expected: str, requests: list[str]
) -> None:
    cluster: Any = Queueing(admitted=admitted)
    backend = a_backend(cluster, tmp_path)
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

    for first in (["Workload"], []):  # The first look asks for those of all namespaces, too.
        cluster.requests = []
        assert expected in backend.explain(RECORD, observation_of(job, [])).reason
        assert cluster.requests == [*first, *requests]
