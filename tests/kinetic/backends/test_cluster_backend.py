"""What the backend of clusters reports when the cluster refuses, and how a job becomes a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.gke.backend import ClusterBackend
from kinetic.backends.gke.forms import form_on, warnings_of
from kinetic.backends.gke.job_spec import ClusterEnvironment, SpecOptions, workload_spec
from kinetic.backends.gke.observation import observation_of
from kinetic.errors import SubmitError
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
from kinetic_k8s.manifests.workload import KIND_OF_FORM, Form, workload_manifest
from kinetic_k8s.reading.queue import QUEUE
from kinetic_payload.stores.store import Location

BUCKET = Location("gs", "jobs")
RECORD = a_record(backend="gke", accelerator="tpu-v5p-8", workload="JobSet", hosts=2)


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


@pytest.mark.parametrize("act", ["check_stop", "stop"])
def test_a_refused_cancel_says_that_the_accelerator_is_still_billed(
    tmp_path: Path, act: str
) -> None:
    limits = {"timeout": 1, "poll_interval": 1} if act == "stop" else {}

    def refused(cluster: Any) -> str:
        backend = ClusterBackend(cluster, FakeStore(), tmp_path, None, {})
        with pytest.raises(NotPermittedError, match="403") as caught:
            getattr(backend, act)(RECORD, **limits)
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
def test_only_a_refusal_of_the_jobs_own_deletion_keeps_it_from_being_cancelled(
    tmp_path: Path, cluster: Any
) -> None:
    ClusterBackend(cluster, FakeStore(), tmp_path, None, {}).check_stop(RECORD)


def test_a_job_is_created_as_the_kind_in_its_record_or_not_at_all(tmp_path: Path) -> None:
    # JobSets were served when the record was written.
    backend = ClusterBackend(Refusing(), FakeStore(), tmp_path, None, {})  # type: ignore[arg-type]
    launch = Launch(
        record=RECORD,
        request=a_request(tmp_path, backend="gke"),
        environment=ClusterEnvironment(
            "image:1", runner=Runner(digest="0" * 64, name="r.py", content=b"")
        ),
    )

    with pytest.raises(SubmitError, match="does not serve JobSet"):
        backend.start(launch)


@pytest.mark.parametrize(
    ("accelerator", "semantics", "served", "form"),
    [
        ("cpu", "gke", (), "job"),
        ("v5p-8", "gke", ("JobSet",), "jobset"),
        ("v5p-8", "gke", ("LeaderWorkerSet",), "indexed-job"),
        ("v5p-8", "pathways", ("JobSet", "LeaderWorkerSet"), "pathways"),
        ("v5p-8", "pathways", ("LeaderWorkerSet",), "pathways-lws"),
        ("tpu-v5litepod-2x4", "pathways", ("JobSet",), "pathways"),
    ],
)
def test_what_the_cluster_serves_decides_the_form(
    accelerator: str, semantics: Any, served: tuple[str, ...], form: Form
) -> None:
    cluster: Any = Refusing(served=served)

    found = form_on(cluster, parse_accelerator(accelerator), semantics)

    assert found == form
    assert bool(warnings_of(found)) is (form == "indexed-job")


def test_pathways_without_its_add_on_names_it() -> None:
    cluster: Any = Refusing()

    with pytest.raises(UnsupportedWorkloadError, match="JobSet") as caught:
        form_on(cluster, parse_accelerator("v5p-8"), "pathways")

    assert caught.value.hint


def train() -> None: ...


def a_request(tmp_path: Path, **options: object) -> JobRequest:
    values = {"accelerator": "v5p-8", "container_image": "image:1", **options}
    checked = check_options(**values)
    environ = {"KINETIC_KUBE_CONTEXT": "mine", "KINETIC_PATHWAYS_TAG": "jax-0.10.0"}
    settings = resolve(checked.settings, environ=environ, user_home=tmp_path)
    return request_of(checked, train, settings, environ={"JAX_PLATFORMS": "cpu"}, cwd=tmp_path)


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[..., Any]:
    def make(form: Form, **options: object) -> Any:
        launch = Launch(
            record=a_record(k8s_name="kn-train-0123456", retries=3),
            request=a_request(tmp_path, **options),
            environment=Environment("image:1"),
        )
        return workload_spec(
            launch, SpecOptions(form=form, store=BUCKET, runner=None, variables={})
        )

    return make


def test_each_form_renders_its_kind_and_tells_the_runner_what_to_expect(
    spec_of: Callable[..., Any],
) -> None:
    for form in ("indexed-job", "jobset"):
        spec = spec_of(form, backend="gke")
        assert KIND_OF_FORM[form] == workload_manifest(spec)["kind"]
        assert spec.pod.environment["KINETIC_DEVICES"] == "tpu:4"
    for form in ("pathways", "pathways-lws"):
        spec = spec_of(form, backend="pathways")
        assert KIND_OF_FORM[form] == workload_manifest(spec)["kind"]
        assert spec.pod.environment["KINETIC_PATHWAYS"] == "jax-0.10.0"
        assert spec.pod.environment["JAX_PLATFORMS"] == "proxy"
        assert ("--idle-after-report" in spec.pod.command) is (form == "pathways-lws")
    # An Indexed Job makes one attempt alone.
    assert "--retries 0" in " ".join(spec_of("indexed-job", backend="gke").pod.command)
    assert "--retries 3" in " ".join(spec_of("jobset", backend="gke").pod.command)


def test_captured_variables_are_not_hidden_by_those_of_the_accelerator(
    spec_of: Callable[..., Any],
) -> None:
    environment = spec_of("jobset", backend="gke", capture_env_vars=["JAX_*"]).pod.environment

    assert not {"JAX_PLATFORMS", "KINETIC_DEVICES"} & set(environment)
    assert environment["KERAS_BACKEND"] == "jax"


class Queueing(Refusing):
    """A cluster whose queue has admitted a job or not, and whose namespace refuses the job's pods."""

    def __init__(self, *, admitted: bool) -> None:
        super().__init__(served=("Workload",))
        state = {"status": str(admitted), "type": "Admitted"}
        short = {"status": str(admitted), "type": "QuotaReserved", "message": "insufficient quota"}
        self.asked: list[str] = []
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
        self.asked.append(kind)
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
def test_why_a_queued_job_has_no_pods_is_reported_for_two_requests(
    tmp_path: Path, admitted: bool, expected: str, requests: list[str]
) -> None:
    cluster: Any = Queueing(admitted=admitted)
    backend = ClusterBackend(cluster, FakeStore(), tmp_path, None, {})
    job = {
        "metadata": {
            "name": "kn-train",
            "uid": "1",
            "labels": {QUEUE: "research"},
            "creationTimestamp": datetime.now(UTC).isoformat(),
        },
        "spec": {"suspend": not admitted},
    }

    for first in (["Workload"], []):  # The first look asks for those of all namespaces, too.
        cluster.asked = []
        assert expected in backend.explain(RECORD, observation_of(job, [])).reason
        assert cluster.asked == [*first, *requests]
