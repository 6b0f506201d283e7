"""Jobs in images of docker, of Cloud Build and of the user, each run by docker as a node of a cluster would run it.

The images are built and used by a submit to a stand-in for a cluster, whose pod becomes docker's arguments.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import KEY, StandIn
from container_programs import DOCKER
from wheel_maker import make_wheel

import kinetic
from kinetic_payload.layout import JobObjects
from kinetic_servers.cloud_build import CloudBuildServer, DockerSteps
from kinetic_servers.gcs import GcsServer
from kinetic_servers.stub_jobs import run as command_line

EXAMPLE = Path(__file__).parents[2] / "examples/custom_image"
VARIABLES = os.environ  # noqa: TID251 - which certificates this machine has
TRAIN = """
import os

def train(number):
    return number + 1, os.getuid(), os.path.exists("/.dockerenv")
"""
USE = """
def train(number):
    import humanize

    return humanize.__file__, humanize.intcomma(number * 1000)
"""
USED = ("/opt/kn/site/humanize/__init__.py", "41,000")
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def python(engine: Any, docker_registry: str, debian: str, tmp_path_factory: Any) -> str:
    """Debian's Python, which trusts what this machine trusts: builds in the cloud get no files of it."""
    folder = tmp_path_factory.mktemp("python")
    trusted = Path(VARIABLES.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    (folder / "authorities.pem").write_bytes(trusted.read_bytes())
    (folder / "Dockerfile").write_text(
        f"FROM {debian}\nCOPY authorities.pem /etc/authorities.pem\n"
        "ENV PIP_CERT=/etc/authorities.pem SSL_CERT_FILE=/etc/authorities.pem\n"
        # Any entry point is ignored.
        'ENTRYPOINT ["/bin/false"]\n'
    )
    image = f"{docker_registry}/base/python:3.11"
    engine.run("build", "-t", image, str(folder))
    engine.run("push", image)
    return image


@pytest.fixture(scope="module")
def example(engine: Any, docker_registry: str, python: str) -> str:
    """The example in the registry; its base is Debian's Python here."""
    engine.run("tag", python, "python:3.11-slim")
    image = f"{docker_registry}/team/custom:1"
    engine.run("build", "-t", image, str(EXAMPLE))
    engine.run("push", image)
    return image


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def bucket(engine: Any) -> Iterator[GcsServer]:
    """A bucket service that containers reach as well."""
    with GcsServer(host=engine.address_of_host) as server:
        server.create_bucket("jobs")
        yield server


@pytest.fixture
def run(
    engine: Any,
    cluster: StandIn,
    bucket: GcsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    """Return what submits a project's function with settings, runs its pod and returns the value."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and functions are pickled for one minor version")
    project = tmp_path / "project"
    (project / "wheels").mkdir(parents=True)
    # A small wheel in the place of JAX, which would take minutes to install and push.
    make_wheel(project / "wheels", {"jax.py": ""}, name="jax")
    requirements = "--find-links wheels\njax==1.0  # kn:keep\nhumanize\n"
    (project / "requirements.txt").write_text(requirements)
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)

    def run_job(text: str, *, image: str | None = None, **settings: str) -> Any:
        (project / "job_of_image.py").write_text(text)
        for name, value in {
            **bucket.environment,
            "KUBECONFIG": str(cluster.kubeconfig(tmp_path)),
            "KINETIC_KUBE_CONTEXT": "standin",
            "KINETIC_HOME": str(tmp_path / "home"),
            "KINETIC_STORE": "gs://jobs",
            **settings,
        }.items():
            monkeypatch.setenv(name, value)
        train = importlib.import_module("job_of_image").train
        decorate = kinetic.run(accelerator="cpu", backend="gke", container_image=image)
        job = decorate(train).run_async(41)
        done = engine.run(*as_kubelet(cluster, tmp_path), check=False)
        output = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, output
        assert JobObjects(job.job_id).outcome in bucket.names("jobs"), output
        return job.result(cleanup=False)

    yield run_job
    sys.modules.pop("job_of_image", None)


def test_a_job_runs_in_the_example_with_any_user_and_a_read_only_root(
    run: Run, example: str
) -> None:
    assert run(TRAIN, image=example) == (42, 12345, True)


@pytest.fixture
def built(engine: Any, docker_registry: str, python: str) -> dict[str, str]:
    """Settings with which an image is built by docker, here or in Cloud Build."""
    return {
        "KINETIC_BASE_IMAGE": python,
        "KINETIC_BUILDS_STORE": "gs://jobs",
        "PATH": f"{Path(DOCKER).parent}:{VARIABLES['PATH']}",
        **{name: engine.environ[name] for name in ("DOCKER_HOST", "DOCKER_CONFIG")},
    }


def test_a_job_runs_in_an_image_that_docker_builds(
    run: Run, docker_registry: str, built: dict[str, str]
) -> None:
    built["KINETIC_IMAGE_REPO"] = f"{docker_registry}/by-docker"

    assert run(USE, KINETIC_IMAGE_BUILDER="docker", **built) == USED


def test_a_job_runs_in_an_image_that_cloud_build_builds(
    run: Run, engine: Any, bucket: GcsServer, docker_registry: str, built: dict[str, str]
) -> None:
    built["KINETIC_IMAGE_REPO"] = f"{docker_registry}/by-cloud-build"
    steps = DockerSteps(DOCKER, engine.environ)
    with CloudBuildServer(bucket.endpoint, steps, project="test-project") as builds:
        builds.accounts.add("kn-ours-builds@test-project.iam.gserviceaccount.com")
        built |= {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD": builds.endpoint,
            "KINETIC_PROJECT": "test-project",
            "KINETIC_ZONE": "us-central1-a",
            "KINETIC_CLUSTER": "ours",
        }
        assert run(USE, KINETIC_IMAGE_BUILDER="cloud_build", **built) == USED
        assert len(builds.builds) == 1


def test_a_job_installs_packages_on_the_users_own_base_image(
    run: Run, docker_registry: str, python: str, built: dict[str, str], tmp_path: Path
) -> None:
    dockerfile = tmp_path / "base" / "Dockerfile"
    dockerfile.parent.mkdir()
    dockerfile.write_text(
        f"FROM {python}\nRUN pip install --break-system-packages -q cloudpickle "
        "google-cloud-storage uv\nLABEL kinetic.python=3.11 kinetic.packages=jax==1.0\n"
    )
    repository = f"{docker_registry}/published"
    published = command_line(
        *("build-image", "--repo", repository, "--category", "cpu"),
        *("--dockerfile", str(dockerfile), "--builder", "docker"),
        home=tmp_path / "home",
        environment=built,
    )
    assert published.exit_code == 0, published.output

    value = run(USE, image="prebuilt", KINETIC_BASE_IMAGE_REPO=repository, **built)

    folder = "/kinetic/workspace/environment/lib/python3.11/site-packages"
    assert value == (f"{folder}/humanize/__init__.py", "41,000")


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
            options += ["--tmpfs", f"{mount['mountPath']}:mode=1777,exec"]
    return [*options, container["image"], *arguments]


def value_of(variable: Any) -> str:
    """Return the value of a variable of a container."""
    if "value" in variable:
        return str(variable["value"])
    if "secretKeyRef" in variable["valueFrom"]:
        return base64.b64decode(KEY["data"]["key"]).decode()
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"metadata.name": "pod-1", "metadata.uid": "1"}.get(path, json.dumps(path))
