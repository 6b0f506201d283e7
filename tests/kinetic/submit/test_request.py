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
    settings = resolve(checked.settings, environ=environ or {}, user_home=tmp_path)
    return request_of(checked, train, settings, environ=captured or {}, cwd=Path("/project"))


def test_a_local_job_needs_no_project(tmp_path: Path) -> None:
    resolved = request(tmp_path, backend="local")

    assert resolved.on_this_machine
    assert resolved.function_name == "train"
    assert resolved.target.project is None


def test_the_backend_may_come_from_the_environment(tmp_path: Path) -> None:
    assert request(tmp_path, environ={"KINETIC_BACKEND": "local-gke"}).backend == "local-gke"


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
def test_local_emulates_what_would_be_chosen_unless_it_is_said(
    tmp_path: Path, backend: str, accelerator: str, semantics: str
) -> None:
    resolved = request(tmp_path, backend=backend, accelerator=accelerator)

    assert resolved.semantics == semantics


def test_spot_may_stand_in_the_accelerator_and_is_harmless_locally(tmp_path: Path) -> None:
    assert request(tmp_path, backend="local", accelerator="gpu-l4:spot").spot
    assert request(tmp_path, backend="local", spot=True).spot


def test_captured_values_are_in_the_request_and_never_in_its_text(tmp_path: Path) -> None:
    resolved = request(
        tmp_path, backend="local", capture_env_vars=["TOKEN", "GONE"], captured={"TOKEN": "s3cret"}
    )

    assert dict(resolved.captured_env) == {"TOKEN": "s3cret"}
    assert "s3cret" not in repr(resolved)
    assert any("GONE" in note for note in resolved.notes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("gs://bucket/out", "gs://bucket/out"),
        ("/abs/out", "/abs/out"),
        ("out", "/project/out"),
    ],
)
def test_a_relative_output_dir_is_below_where_the_user_stands(
    tmp_path: Path, given: str | None, expected: str | None
) -> None:
    assert request(tmp_path, backend="local", output_dir=given).output_dir == expected


def test_a_cluster_needs_a_project_or_a_context(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs a project"):
        request(tmp_path)

    assert request(tmp_path, project="p").backend == "gke"
    assert request(tmp_path, environ={"GOOGLE_CLOUD_PROJECT": "p"}).target.project == "p"
    beside = request(tmp_path, environ={"KINETIC_KUBE_CONTEXT": "bed"})
    assert (beside.target.project, beside.target.kube_context) == (None, "bed")
    slice_ = request(tmp_path, project="p", accelerator="tpu-v5litepod-16")
    assert (slice_.backend, slice_.semantics) == ("pathways", "pathways")


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        ({"backend": "locl"}, {}, "'local'"),
        ({"backend": "local", "output_dir": "gs:/bucket/out"}, {}, "gs://BUCKET/FOLDER"),
        (
            {"backend": "gke", "project": "p", "output_dir": "gs:/bucket/out"},
            {},
            "gs://BUCKET/FOLDER",
        ),
        ({"backend": "gke", "project": "p", "output_dir": "out"}, {}, "gs://BUCKET/FOLDER"),
        ({"backend": "gke", "project": "p", "output_dir": "gs:///out"}, {}, "gs:///out"),
        ({"backend": "gke", "project": "p", "output_dir": "gs://My_Bucket/out"}, {}, "'My_Bucket'"),
        ({"backend": "gke", "project": "p"}, {"KINETIC_OUTPUT_DIR": "~/out"}, "gs://BUCKET/FOLDER"),
        ({"backend": "slurm"}, {}, "There are:"),
        ({}, {"KINETIC_BACKEND": "pathway"}, "KINETIC_BACKEND"),
        ({"backend": "local-pathways"}, {}, "TPU"),
        ({"backend": "pathways", "accelerator": "gpu-l4", "project": "p"}, {}, "TPU"),
    ],
)
def test_what_contradicts_the_backend_is_refused_with_advice(
    tmp_path: Path, options, environ, said: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request(tmp_path, environ=environ, **options)

    assert said in str(caught.value)
    assert caught.value.hint


def test_a_folder_of_a_pod_is_a_warning_on_a_cluster(tmp_path: Path) -> None:
    folder = request(tmp_path, backend="gke", project="p", output_dir="/mnt/outputs")
    uri = request(tmp_path, backend="gke", project="p", output_dir="gs://bucket/outputs")

    assert folder.output_dir == "/mnt/outputs"
    assert "is removed with the pod" in " ".join(folder.notes)
    assert uri.notes == ()


def a_profile(home: Path, **values: object) -> None:
    folder = home / ".kinetic"
    folder.mkdir()
    known = {"dev": {"project": "p", "zone": "z", "cluster": "c", **values}}
    (folder / "profiles.json").write_text(json.dumps({"current": "dev", "profiles": known}))


def test_pod_overrides_come_from_the_profile_unless_they_are_given(tmp_path: Path) -> None:
    a_profile(tmp_path, pod_overrides={"spec": {"priorityClassName": "batch"}})

    assert request(tmp_path).pod_overrides == {"spec": {"priorityClassName": "batch"}}
    assert request(tmp_path, pod_overrides={}).pod_overrides == {}
    assert request(tmp_path, pod_overrides={"spec": {}}).pod_overrides == {"spec": {}}
    # Jobs on this machine have no pods.
    assert request(tmp_path, backend="local").pod_overrides == {}


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("KINETIC_NAMESPACE", "Team_A", "'Team_A' cannot be the name of a namespace"),
        ("KINETIC_NAMESPACE", "a.b", "(from: KINETIC_NAMESPACE)"),
        ("KINETIC_NAMESPACE", "a" * 64, "cannot be the name of a namespace"),
        (
            "KINETIC_SERVICE_ACCOUNT",
            "me@p.iam.gserviceaccount.com",
            "cannot be the name of a service",
        ),
    ],
)
def test_names_that_kubernetes_cannot_accept_are_refused(
    tmp_path: Path, variable: str, value: str, said: str
) -> None:
    named = {"KINETIC_PROJECT": "p", variable: value}

    with pytest.raises(InvalidRequestError) as caught:
        request(tmp_path, environ=named)
    assert said in str(caught.value)
    # A local job has neither.
    request(tmp_path, environ=named, backend="local")


def test_a_profiles_overrides_are_checked_as_those_of_the_argument(tmp_path: Path) -> None:
    a_profile(tmp_path, pod_overrides={"spec": {"nodeName": "mine"}})

    with pytest.raises(InvalidRequestError, match="nodeName belongs to Kinetic"):
        request(tmp_path)
    request(tmp_path, backend="local")


def test_the_service_account_is_a_setting(tmp_path: Path) -> None:
    a_profile(tmp_path, service_account="from-profile")

    assert request(tmp_path).service_account == "from-profile"
    named = {"KINETIC_SERVICE_ACCOUNT": "from-variable"}
    assert request(tmp_path, environ=named).service_account == "from-variable"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accelerator": "v5p-8", "memory": "449Gi"}, "memory='449Gi' is more than the 448 GiB"),
        ({"accelerator": "v5e-1", "cpu": 25}, "24 cores of ct5lp-hightpu-1t"),
        ({"accelerator": "v5e-8", "shared_memory": "1Ti"}, "384 GiB of ct5lp-hightpu-8t"),
        ({"accelerator": "l4", "cpu": 33}, "32 cores of g2-standard-32"),
        ({"accelerator": "l4", "memory": "129Gi"}, "128 GiB of g2-standard-32"),
        ({"accelerator": "a100x8", "cpu": 97}, "96 cores of a2-highgpu-8g"),
        ({"accelerator": "h100", "memory": "235Gi"}, "234 GiB of a3-highgpu-1g"),
    ],
)
def test_more_than_a_machine_has_is_refused(
    tmp_path: Path, given: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request(tmp_path, backend="local-gke", **given)
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        {"accelerator": "v5p-8", "memory": "448Gi", "cpu": 208},
        {"accelerator": "t4", "cpu": 48},
        {"accelerator": "t4", "memory": "1Ti"},
        {"accelerator": "cpu", "cpu": 500, "memory": "10Ti"},
    ],
)
def test_where_the_size_of_a_machine_is_not_known_nothing_is_refused(
    tmp_path: Path, given: dict[str, object]
) -> None:
    request(tmp_path, backend="local-gke", **given)


def test_under_pathways_the_function_runs_on_another_machine(tmp_path: Path) -> None:
    resolved = request(
        tmp_path, backend="local-pathways", accelerator="v5litepod-16", memory="230Gi"
    )

    assert resolved.resources.memory == 230 << 30
