"""The smallest custom image, built from the example, runs a job as a node of a cluster would run it."""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import KEY, StandIn, running_api_server

import kinetic
from kinetic_payload.layout import JobObjects
from kinetic_payload.testing.gcs import GcsServer

EXAMPLE = Path(__file__).parents[2] / "examples/custom_image"
VARIABLES = os.environ  # noqa: TID251 - which certificates this machine has
TRAIN = """
import os

def train(number):
    return number + 1, os.getuid(), os.path.exists("/.dockerenv")
"""


@pytest.fixture(scope="module")
def example(engine: Any, docker_registry: str, debian: str, tmp_path_factory: Any) -> str:
    """The example in the registry. Its base is Debian's Python here, which trusts what this machine trusts."""
    folder = tmp_path_factory.mktemp("python")
    trusted = Path(VARIABLES.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    (folder / "authorities.pem").write_bytes(trusted.read_bytes())
    (folder / "Dockerfile").write_text(
        f"FROM {debian}\nCOPY authorities.pem /etc/authorities.pem\n"
        "ENV PIP_CERT=/etc/authorities.pem\n"
        # Any entry point is ignored.
        'ENTRYPOINT ["/bin/false"]\n'
    )
    engine.run("build", "-t", "python:3.11-slim", str(folder))
    image = f"{docker_registry}/team/custom:1"
    engine.run("build", "-t", image, str(EXAMPLE))
    engine.run("push", image)
    return image


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with running_api_server() as running:
        yield running


@pytest.fixture
def bucket(engine: Any) -> Iterator[GcsServer]:
    """A bucket service that containers reach as well."""
    form = "{{(index .IPAM.Config 0).Gateway}}"
    found = engine.run("network", "inspect", "bridge", "--format", form).stdout
    with GcsServer(host=found.decode().strip()) as server:
        server.create_bucket("jobs")
        yield server


def test_a_job_runs_in_it_with_any_user_and_a_read_only_root(
    engine: Any,
    example: str,
    cluster: StandIn,
    bucket: GcsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and functions are pickled for one minor version")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]\nname = 'users-project'\nversion = '1'\n")
    (project / "job_of_image.py").write_text(TRAIN)
    for name, value in {
        **bucket.environment,
        "KUBECONFIG": str(cluster.kubeconfig(tmp_path)),
        "KINETIC_KUBE_CONTEXT": "standin",
        "KINETIC_HOME": str(tmp_path / "home"),
        "KINETIC_STORE": "gs://jobs",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    train = importlib.import_module("job_of_image").train

    run = kinetic.run(accelerator="cpu", backend="gke", container_image=example)
    job = run(train).run_async(41)
    done = engine.run(*as_kubelet(cluster, tmp_path), check=False)

    output = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, output
    assert JobObjects(job.job_id).outcome in bucket.names("jobs"), output
    assert job.result(cleanup=False) == (42, 12345, True)


def as_kubelet(cluster: StandIn, folder: Path) -> list[str]:
    """Return docker's arguments for the pod of the only job: its image, command, variables and mounts."""
    spec = cluster.created("Job")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    runner = folder / "runner"
    ((_, content),) = cluster.created("ConfigMap")["binaryData"].items()
    runner.write_bytes(base64.b64decode(content))
    runner.chmod(0o644)
    program, *arguments = container["command"]
    options = ["run", "--rm", "--read-only", "--user", "12345:12345"]
    options += ["--entrypoint", program]
    for variable in container["env"]:
        options += ["--env", f"{variable['name']}={value_of(variable)}"]
    for mount in container["volumeMounts"]:
        if "subPath" in mount:
            options += ["--volume", f"{runner}:{mount['mountPath']}:ro"]
        else:
            options += ["--tmpfs", f"{mount['mountPath']}:mode=1777"]
    return [*options, container["image"], *arguments]


def value_of(variable: Any) -> str:
    """Return the value of a variable of a container."""
    if "value" in variable:
        return str(variable["value"])
    if "secretKeyRef" in variable["valueFrom"]:
        return base64.b64decode(KEY["data"]["key"]).decode()
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"metadata.name": "pod-1", "metadata.uid": "1"}.get(path, json.dumps(path))
