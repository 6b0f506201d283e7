"""Workloads of jobs, rendered without a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.gke.job_spec import workload_spec
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.request import request_of
from kinetic_k8s.manifests.workload import SPEC_OF_FORM, Form
from kinetic_payload.layout import GRACE_SECONDS
from kinetic_payload.stores.store import Location
from kinetic_servers.fakes import a_record


def train() -> None: ...


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[..., Any]:
    def make(form: Form, captured: dict[str, str] | None = None, **options: object) -> Any:
        values = {"accelerator": "v5p-8", "backend": "gke", "container_image": "image:1"}
        checked = check_options(**{**values, "capture_env_vars": list(captured or ()), **options})
        environ = {"KINETIC_KUBE_CONTEXT": "mine", "KINETIC_PATHWAYS_TAG": "jax-0.10.0"}
        settings = resolve(checked.overrides, environ=environ, user_home=tmp_path)
        request = request_of(checked, train, settings, environ=captured or {}, cwd=tmp_path)
        launch = Launch(
            record=a_record(k8s_name="kn-train-0123456", retries=request.retries),
            record_digest="1" * 64,
            request=request,
            environment=Environment("image:1"),
        )
        variables = {"STORAGE_EMULATOR_HOST": "x"}
        return workload_spec(launch, form, Location("gs", "jobs"), variables=variables)

    return make


def containers_of(manifest: object) -> Iterator[dict[str, Any]]:
    """Iterate over all containers of a workload."""
    if isinstance(manifest, dict):
        yield from manifest.get("containers", ())
        for each in manifest.values():
            yield from containers_of(each)
    elif isinstance(manifest, list):
        for each in manifest:
            yield from containers_of(each)


def test_a_job_pins_what_it_runs_and_names_its_secrets(spec_of: Callable[..., Any]) -> None:
    spec = spec_of(
        "job", {"TOKEN": "hunter2"}, accelerator="cpu", cpu=0.5, memory="2Gi", retries=3
    )  # fmt: skip
    manifest = spec.manifest()

    command = " ".join(spec.pod.command)
    template = manifest["spec"]["template"]["spec"]
    # The rest is for the runner's report, after a function that did not react to SIGTERM was killed.
    assert template["terminationGracePeriodSeconds"] == GRACE_SECONDS + 5
    assert f"--record-digest {'1' * 64} --workspace" in command
    assert "--attempt" not in command
    assert "hunter2" not in json.dumps(manifest)
    container = template["containers"][0]
    assert container["envFrom"] == [{"secretRef": {"name": "kn-train-0123456-env"}}]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "2Gi"}
    assert {each["name"] for each in container["env"]} >= {
        "KINETIC_SIGNING_KEY", "KINETIC_JOB_ID", "KINETIC_OUTPUT_DIR", "STORAGE_EMULATOR_HOST",
    }  # fmt: skip
    by_field = {"fieldRef": {"fieldPath": "metadata.name"}}
    assert {"name": "KINETIC_POD_NAME", "valueFrom": by_field} in container["env"]
    assert manifest["spec"]["backoffLimit"] == 3


def test_each_form_renders_its_kind_and_passes_the_devices_to_the_runner(
    spec_of: Callable[..., Any],
) -> None:
    for form in ("indexed-job", "jobset"):
        spec = spec_of(form, retries=3)
        assert SPEC_OF_FORM[form].kind == spec.manifest()["kind"]
        assert spec.pod.environment["KINETIC_DEVICES"] == "tpu:4"
    for form in ("pathways", "pathways-lws"):
        spec = spec_of(form, backend="pathways")
        assert SPEC_OF_FORM[form].kind == spec.manifest()["kind"]
        assert spec.pod.environment["KINETIC_PATHWAYS"] == "jax-0.10.0"
        assert ("--idle-after-report" in spec.pod.command) is (form == "pathways-lws")


@pytest.mark.parametrize(
    ("options", "form", "captured", "expected"),
    [
        ({"accelerator": "cpu"}, "job", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}),
        ({"accelerator": "l4"}, "job", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cuda,cpu"}),
        ({}, "jobset", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "tpu,cpu"}),
        ({"backend": "pathways"}, "pathways", {}, {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "proxy"}),
        # Variables of the pod would hide those of the Secret.
        ({"accelerator": "l4"}, "job", {"KERAS_BACKEND": "torch"}, {"JAX_PLATFORMS": "cuda,cpu"}),
        ({"accelerator": "l4"}, "job", {"JAX_PLATFORMS": ""}, {"KERAS_BACKEND": "jax"}),
    ],
)  # fmt: skip
def test_captured_variables_replace_those_of_the_accelerator(
    spec_of: Callable[..., Any],
    options: dict[str, object],
    form: Form,
    captured: dict[str, str],
    expected: dict[str, str],
) -> None:
    manifest = spec_of(form, captured, **options).manifest()

    (container,) = [each for each in containers_of(manifest) if each["name"] == "kinetic"]
    given = {each["name"]: each.get("value") for each in container["env"]}
    names = ("KERAS_BACKEND", "JAX_PLATFORMS")
    assert {name: given[name] for name in names if name in given} == expected
    assert ("envFrom" in container) is bool(captured)
    devices = options.get("accelerator") != "cpu" and "JAX_PLATFORMS" not in captured
    assert ("KINETIC_DEVICES" in given) is devices
