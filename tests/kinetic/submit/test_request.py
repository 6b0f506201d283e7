from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetic.errors import ConfigurationError, InvalidRequestError
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of


def train() -> None: ...


def request(
    tmp_path: Path, *, environ: dict[str, str] | None = None, captured: dict[str, str] | None = None,
    **options: object,
) -> JobRequest:  # fmt: skip
    checked = check_options(**{"accelerator": "cpu", **options})
    settings = resolve(checked.overrides, environ=environ or {}, user_home=tmp_path)
    return request_of(checked, train, settings, environ=captured or {}, cwd=Path("/project"))


@pytest.mark.parametrize(
    ("backend", "accelerator", "semantics"),
    [
        ("local", "cpu", "gke"),
        ("local", "tpu-v5litepod-4", "gke"),
        ("local", "tpu-v5litepod-16", "pathways"),
        ("local-gke", "tpu-v5litepod-16", "gke"),
        ("local-pathways", "tpu-v5litepod-4", "pathways"),
    ],
)
def test_a_local_backend_needs_no_project_and_emulates_what_suits_the_accelerator(
    tmp_path: Path, backend: str, accelerator: str, semantics: str
) -> None:
    resolved = request(tmp_path, environ={"KINETIC_BACKEND": backend}, accelerator=accelerator)

    assert (resolved.backend, resolved.semantics) == (backend, semantics)
    assert resolved.on_this_machine
    assert resolved.target.project is None
    assert resolved.function_name == "train"


def test_a_cluster_needs_a_project_or_a_context(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs a project"):
        request(tmp_path)

    assert request(tmp_path, project="p").backend == "gke"
    assert request(tmp_path, environ={"GOOGLE_CLOUD_PROJECT": "p"}).target.project == "p"
    by_context = request(tmp_path, environ={"KINETIC_KUBE_CONTEXT": "bed"})
    assert (by_context.target.project, by_context.target.kube_context) == (None, "bed")
    slice_ = request(tmp_path, project="p", accelerator="tpu-v5litepod-16")
    assert (slice_.backend, slice_.semantics) == ("pathways", "pathways")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("gs://bucket/out", "gs://bucket/out"),
        ("/abs/out", "/abs/out"),
        ("out", "/project/out"),
    ],
)
def test_a_relative_output_dir_is_resolved_against_the_working_directory(
    tmp_path: Path, given: str | None, expected: str | None
) -> None:
    assert request(tmp_path, backend="local", output_dir=given).output_dir == expected


def test_a_folder_as_output_dir_on_a_cluster_is_a_warning(tmp_path: Path) -> None:
    folder = request(tmp_path, backend="gke", project="p", output_dir="/mnt/outputs")
    uri = request(tmp_path, backend="gke", project="p", output_dir="gs://bucket/outputs")

    assert folder.output_dir == "/mnt/outputs"
    assert "is removed with the pod" in " ".join(folder.notes)
    assert uri.notes == ()


LOCAL = {"backend": "local-gke"}
GKE = {"backend": "gke", "project": "p"}


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ({"backend": "locl"}, {}, "'local'"),
        ({"backend": "slurm"}, {}, "There are:"),
        ({}, {"KINETIC_BACKEND": "pathway"}, "KINETIC_BACKEND"),
        ({"backend": "local-pathways"}, {}, "TPU"),
        ({"backend": "pathways", "accelerator": "gpu-l4", "project": "p"}, {}, "TPU"),
        # Outputs.
        ({"backend": "local", "output_dir": "gs:/bucket/out"}, {}, "gs://BUCKET/FOLDER"),
        ({**GKE, "output_dir": "gs:/bucket/out"}, {}, "gs://BUCKET/FOLDER"),
        ({**GKE, "output_dir": "out"}, {}, "gs://BUCKET/FOLDER"),
        ({**GKE, "output_dir": "gs:///out"}, {}, "gs:///out"),
        ({**GKE, "output_dir": "gs://My_Bucket/out"}, {}, "'My_Bucket'"),
        (GKE, {"KINETIC_OUTPUT_DIR": "~/out"}, "gs://BUCKET/FOLDER"),
        ({"backend": "local", "output_dir": "s3://bucket/x"}, {}, "s3://bucket/x"),
        ({**GKE, "output_dir": "s3://bucket/x"}, {}, "s3://bucket/x"),
        # More than a machine has.
        ({**LOCAL, "accelerator": "v5p-8", "memory": "449Gi"}, {}, "memory='449Gi' is more than the 448 GiB"),
        ({**LOCAL, "accelerator": "v5e-1", "cpu": 25}, {}, "24 cores of ct5lp-hightpu-1t"),
        ({**LOCAL, "accelerator": "v5e-8", "shared_memory": "1Ti"}, {}, "384 GiB of ct5lp-hightpu-8t"),
        ({**LOCAL, "accelerator": "l4", "cpu": 33}, {}, "32 cores of g2-standard-32"),
        ({**LOCAL, "accelerator": "l4", "memory": "129Gi"}, {}, "128 GiB of g2-standard-32"),
        ({**LOCAL, "accelerator": "a100x8", "cpu": 97}, {}, "96 cores of a2-highgpu-8g"),
        ({**LOCAL, "accelerator": "h100", "memory": "235Gi"}, {}, "234 GiB of a3-highgpu-1g"),
    ],
)  # fmt: skip
def test_options_that_the_backend_cannot_satisfy_are_refused_with_a_hint(
    tmp_path: Path, options: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request(tmp_path, environ=environ, **options)

    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"accelerator": "v5p-8", "memory": "448Gi", "cpu": 208},
        # The size of the machine is not known.
        {"accelerator": "t4", "cpu": 48},
        {"accelerator": "t4", "memory": "1Ti"},
        {"accelerator": "cpu", "cpu": 500, "memory": "10Ti"},
        # Under Pathways, the function runs on another machine.
        {"backend": "local-pathways", "accelerator": "v5litepod-16", "memory": "230Gi"},
    ],
)
def test_resources_that_a_machine_may_have_are_accepted(
    tmp_path: Path, options: dict[str, object]
) -> None:
    request(tmp_path, **{**LOCAL, **options})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("KINETIC_NAMESPACE", "Team_A", "'Team_A' cannot be the name of a namespace"),
        ("KINETIC_NAMESPACE", "a.b", "(from: KINETIC_NAMESPACE)"),
        ("KINETIC_NAMESPACE", "a" * 64, "cannot be the name of a namespace"),
        ("KINETIC_SERVICE_ACCOUNT", "me@p.iam.gserviceaccount.com", "cannot be the name of a service"),
    ],
)  # fmt: skip
def test_a_name_that_kubernetes_cannot_accept_is_refused_for_a_cluster(
    tmp_path: Path, variable: str, value: str, message: str
) -> None:
    environ = {"KINETIC_PROJECT": "p", variable: value}

    with pytest.raises(InvalidRequestError) as caught:
        request(tmp_path, environ=environ)
    assert message in str(caught.value)
    if variable == "KINETIC_SERVICE_ACCOUNT":
        request(tmp_path, environ=environ, backend="local")  # A local job has none.


def a_profile(home: Path, **values: object) -> None:
    folder = home / ".kinetic"
    folder.mkdir(exist_ok=True)
    known = {"dev": {"project": "p", "zone": "z", "cluster": "c", **values}}
    (folder / "profiles.json").write_text(json.dumps({"current": "dev", "profiles": known}))


def test_pod_overrides_of_the_profile_are_checked_and_replaced_by_the_argument(
    tmp_path: Path,
) -> None:
    a_profile(tmp_path, pod_overrides={"spec": {"priorityClassName": "batch"}})
    assert request(tmp_path).pod_overrides == {"spec": {"priorityClassName": "batch"}}
    assert request(tmp_path, pod_overrides={}).pod_overrides == {}
    assert request(tmp_path, pod_overrides={"spec": {}}).pod_overrides == {"spec": {}}

    a_profile(tmp_path, pod_overrides={"spec": {"nodeName": "mine"}})
    with pytest.raises(InvalidRequestError, match="nodeName belongs to Kinetic"):
        request(tmp_path)
    # Jobs on this machine have no pods.
    assert request(tmp_path, backend="local").pod_overrides == {}
