"""`kinetic build-image` publishes base images, and prepares images and environments of projects."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_server import StandIn
from click.testing import Result
from file_server import FileServer, running_file_server
from locked_project import write_wheel
from small_images import PYTHON, push_image

import kinetic
from kinetic.jobs.runner import modules_in_jobs
from kinetic_images.bases import find_base
from kinetic_images.registry.registry import Registry
from kinetic_payload.http.retry import RetryPolicy
from kinetic_runner.bundle import bundle_for
from kinetic_servers.cloud_build import CloudBuildServer, PythonSteps
from kinetic_servers.gcs import GcsServer
from kinetic_servers.registry.server import RegistryServer
from kinetic_servers.stub_jobs import run

JAX = "0.10.2" if PYTHON == "3.11" else "0.12.0.1"
PICKLE = importlib.metadata.version("cloudpickle")


class World:
    """A registry with Python's image, and an index with the packages of base images."""

    def __init__(
        self, folder: Path, server: RegistryServer, index: FileServer, patch: pytest.MonkeyPatch
    ) -> None:
        self.folder, self.server, self.index, self.patch = folder, server, index, patch
        self.registry = Registry(environ={}, google=lambda: None, policy=RetryPolicy(limit=0.5))
        self.base = push_image(server.host, self.registry)
        self.repository = f"{server.host}/ours"
        for name in ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX", "PIP_INDEX_URL"):
            patch.delenv(name, raising=False)
        patch.setenv("UV_DEFAULT_INDEX", index.url("/simple/"))
        patch.setenv("UV_CACHE_DIR", str(folder / "uv"))
        patch.setenv("UV_HTTP_RETRIES", "0")
        patch.setenv("HOME", str(folder))
        patch.setenv("DOCKER_CONFIG", str(folder / "docker"))
        patch.setenv("KINETIC_BASE_IMAGE", self.base)
        patch.setenv("KINETIC_IMAGE_BUILDER", "layers")
        self.offer("jax", JAX, extras=("cuda12", "tpu"))
        self.offer("cloudpickle", PICKLE)
        self.offer("google-cloud-storage", "9.0")
        self.offer("uv", "9.0")

    def offer(self, name: str, version: str, **more: Any) -> None:
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        digest = write_wheel(self.folder / "wheels" / file, name.replace("-", "_"), version, **more)
        self.index.add(f"/files/{file}", (self.folder / "wheels" / file).read_bytes())
        page = self.index.files.get(f"/simple/{name}/", b"")
        page += f'<a href="/files/{file}#sha256={digest}">{file}</a>\n'.encode()
        self.index.add(f"/simple/{name}/", page)
        self.index.files[f"/simple/{name}/"] = page

    def build(self, *args: str) -> Result:
        return run("build-image", "--repo", self.repository, *args, home=self.folder / "kinetic")

    def rows(self, *args: str) -> dict[str, dict[str, Any]]:
        ran = self.build("--json", *args)
        return {row["category"]: row for row in json.loads(ran.stdout)["images"]}

    def packages(self, category: str) -> dict[str, str]:
        address = f"{self.repository}/base-{category}:{kinetic.__version__}"
        found = find_base(address, PYTHON, "x86_64", self.registry, self.folder / "kinetic")
        assert found.labelled
        return dict(found.packages or {})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with RegistryServer() as server, running_file_server() as index:
        yield World(tmp_path, server, index, monkeypatch)


def test_all_categories_are_published_with_their_lists_of_packages(world: World) -> None:
    ran = world.build()

    assert ran.exit_code == 0, ran.stderr
    assert f"KINETIC_BASE_IMAGE_REPO={world.repository}" in ran.stderr
    assert "without a project" not in ran.stderr
    packages = {"cloudpickle": PICKLE, "google-cloud-storage": "9.0", "jax": JAX, "uv": "9.0"}
    for category in ("cpu", "gpu", "tpu"):
        assert world.packages(category) == packages
        assert f"[{category}] " in ran.stderr


def test_an_image_that_exists_is_kept_tagged_or_rebuilt(world: World) -> None:
    first = world.rows("--category", "cpu")["cpu"]
    assert (first["status"], first["builder"]) == ("built", "layers")
    world.offer("uv", "10.0")
    world.server.requests.clear()

    again = world.rows("--category", "cpu")["cpu"]
    assert (again["status"], again["digest"]) == ("up to date", first["digest"])
    assert {request.method for request in world.server.requests} == {"HEAD"}

    tagged = world.rows("--category", "cpu", "--tag", "stable")["cpu"]
    assert (tagged["status"], tagged["digest"]) == ("published", first["digest"])
    assert tagged["image"] == f"{world.repository}/base-cpu:stable"
    ran = world.build("--category", "cpu", "--tag", "stable")
    assert f"Jobs look for the tag {kinetic.__version__}" in ran.stderr

    assert world.rows("--category", "cpu", "--rebuild")["cpu"]["status"] == "built"
    assert world.packages("cpu")["uv"] == "10.0"


def test_a_category_that_fails_does_not_prevent_the_others(world: World) -> None:
    del world.index.files["/simple/jax/"]
    world.offer("jax", JAX, extras=("tpu",))  # There is no JAX for CUDA.

    ran = world.build("--json")

    rows = {row["category"]: row for row in json.loads(ran.stdout)["images"]}
    assert ran.exit_code == 1
    statuses = {name: row["status"] for name, row in rows.items()}
    assert statuses == {"cpu": "built", "gpu": "failed", "tpu": "built"}
    assert "cuda12" in rows["gpu"]["error"]
    repository = world.registry.repository(f"{world.repository}/base-gpu")
    assert repository.digest(kinetic.__version__) is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--repo", "Not A Repository"], "--repo: 'Not A Repository'"),
        (["--tag", "not a tag"], "tag"),
        (["--category", "npu"], "npu"),
        (["--builder", "kaniko"], "kaniko"),
        (["--builder", "cloud_build"], "KINETIC_PROJECT"),
        (["--dockerfile", "nowhere/Dockerfile"], "There is no Dockerfile nowhere/Dockerfile"),
        (["--dockerfile", __file__], "'layers' runs no Dockerfile"),
        (["--registry-user", "me"], "--registry-secret SECRET"),
        (["--accelerator", "cpu"], "--repo is for base images"),
        (["main.py"], "needs --accelerator"),
        (["--registry-user", "me", "--registry-secret", "hub"], "--builder cloud_build"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_any_request(
    world: World, args: list[str], message: str
) -> None:
    world.server.requests.clear()

    ran = world.build(*args)

    assert ran.exit_code in (1, 2)
    assert message in ran.stderr
    assert list(world.server.requests) == []
    assert world.index.requests == []


def test_without_a_repository_the_setting_is_named(world: World) -> None:
    ran = run("build-image", home=world.folder / "kinetic")

    assert ran.exit_code == 1
    assert "KINETIC_BASE_IMAGE_REPO" in ran.stderr


def test_cloud_build_reads_logins_of_indexes_from_the_secret_in_a_setting(
    world: World,
) -> None:
    password = "pa55word-of-the-index"
    world.patch.setenv(
        "UV_DEFAULT_INDEX", world.index.url("/simple/").replace("//", f"//me:{password}@")
    )
    steps = PythonSteps({"gcr.io/cloud-builders/docker": lambda step: 3})
    with GcsServer() as buckets, CloudBuildServer(buckets.endpoint, steps) as builds:
        buckets.create_bucket("builds")
        builds.accounts.add("kn-one-builds@test-project.iam.gserviceaccount.com")
        builds.secrets["projects/test-project/secrets/logins/versions/latest"] = "machine x"
        variables = {
            **buckets.environment,
            "KINETIC_PROJECT": "test-project",
            "KINETIC_ZONE": "us-central1-a",
            "KINETIC_CLUSTER": "one",
            "KINETIC_BUILDS_STORE": "gs://builds",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDBUILD": builds.endpoint,
        }

        def build(*args: str, **more: str) -> Result:
            args = ("--repo", world.repository, "--builder", "cloud_build", *args)
            environment = {**variables, **more}
            return run("build-image", *args, home=world.folder / "k", environment=environment)

        wrong = build("--registry-user", "me", "--registry-secret", f"my {password}")
        assert "--registry-secret: This is not the name of a secret" in wrong.stderr
        refused = build("--category", "cpu")
        assert refused.exit_code == 1
        assert "127.0.0.1 with a login, and Cloud Build has none" in refused.stderr
        assert "gcloud secrets create kinetic-netrc --project=test-project" in refused.stderr
        assert buckets.names("builds") == []
        built = build("--category", "cpu", KINETIC_BUILD_SECRET="logins")

    assert "non-zero status: 3" in built.stderr
    (build,) = builds.builds.values()
    (secret,) = build.available_secrets.secret_manager
    assert secret.version_name == "projects/test-project/secrets/logins/versions/latest"
    everything = (
        f"{wrong.stderr}{refused.output}{refused.stderr}{built.output}{built.stderr}{build}"
    )
    assert password not in everything


class Cluster:
    """A project, and a cluster for its jobs that stores what it receives."""

    def __init__(self, world: World, api: StandIn, buckets: GcsServer) -> None:
        self.world, self.api = world, api
        self.root = world.folder / "project"
        (self.root / ".git").mkdir(parents=True)
        (self.root / "requirements.txt").write_text("alpha\n")
        (self.root / "job_of_image.py").write_text("def train():\n    return 1\n")
        world.offer("alpha", "1.0")
        buckets.create_bucket("jobs")
        # The same address in a form that is not refused: here, pods need not reach it.
        emulator = buckets.endpoint.replace("127.0.0.1", "127.1")
        for name, value in {
            **buckets.environment,
            "STORAGE_EMULATOR_HOST": emulator,
            "KUBECONFIG": str(api.kubeconfig(world.folder)),
            "KINETIC_KUBE_CONTEXT": "standin",
            "KINETIC_HOME": str(world.folder / "kinetic"),
            "KINETIC_BUILDS_STORE": "gs://jobs",
            "KINETIC_IMAGE_REPO": world.repository,
        }.items():
            world.patch.setenv(name, value)
        world.patch.syspath_prepend(self.root)

    def build(self, *args: str) -> Result:
        return run(
            "build-image",
            *("--accelerator", "cpu", *args),
            home=self.world.folder / "kinetic",
            environment={"KINETIC_STORE": "gs://jobs", "KINETIC_BACKEND": "gke"},
        )

    def image_of_a_job(self) -> str:
        self.world.patch.setenv("KINETIC_STORE", "gs://jobs")
        importlib.invalidate_caches()
        train = importlib.import_module("job_of_image").train
        for path in [path for path, each in self.api.objects.items() if each["kind"] == "Job"]:
            del self.api.objects[path]
        kinetic.run(accelerator="cpu", backend="gke")(train).run_async()
        (container,) = self.api.created("Job")["spec"]["template"]["spec"]["containers"]
        image: str = container["image"]
        return image


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runner's bundle for a cluster: making one takes seconds."""
    return bundle_for(tmp_path_factory.mktemp("cache"), modules_in_jobs(), bytecode=False)


@pytest.fixture
def cluster(world: World, runner: Path) -> Iterator[Cluster]:
    (world.folder / "kinetic" / "cache").mkdir(mode=0o700, parents=True)
    shutil.copy2(runner, world.folder / "kinetic" / "cache")
    with StandIn() as api, GcsServer() as buckets:
        yield Cluster(world, api, buckets)
        sys.modules.pop("job_of_image", None)


def test_a_job_uses_the_image_of_its_project_that_was_built_before(
    cluster: Cluster,
) -> None:
    world = cluster.world
    first = cluster.build(str(cluster.root))
    assert first.exit_code == 0, first.stderr
    image = first.stdout.strip()
    assert image.startswith(f"{world.repository}/bundled@sha256:")
    assert "Building" in first.stderr
    world.server.requests.clear()

    assert cluster.image_of_a_job() == image

    assert "PUT" not in {request.method for request in world.server.requests}
    world.offer("alpha", "2.0")
    world.patch.chdir(cluster.root)
    assert json.loads(cluster.build("--json", "job_of_image.py").stdout)["image"] == image
    newer = cluster.build("--rebuild").stdout.strip()
    assert newer != image
    assert cluster.image_of_a_job() == newer


def test_requirements_that_a_job_would_be_refused_for_are_refused(cluster: Cluster) -> None:
    (cluster.root / "requirements.txt").write_text("alpha>=9\n")
    ran = cluster.build(str(cluster.root))
    assert ran.exit_code == 1
    assert f"{cluster.root}/requirements.txt:1: alpha>=9" in ran.stderr
    assert "There is no" in cluster.build(str(cluster.root / "none")).stderr


def test_the_environment_of_a_project_is_made_for_the_local_backend(
    world: World, warm: Callable[[Path], Path]
) -> None:
    root = world.folder / "project"
    root.mkdir()
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["alpha"]\n'
    (root / "pyproject.toml").write_text(project)
    (root / "environment.yml").touch()
    world.offer("alpha", "1.0")
    home = warm(world.folder / "kinetic")

    made = run(
        *("build-image", "--accelerator", "cpu", str(root), "--quiet"),
        home=home,
        environment={"KINETIC_BACKEND": "local"},
    )

    assert made.exit_code == 0, made.stderr
    lines = made.stderr.splitlines()
    assert any(f"{root}/environment.yml is not read." in line for line in lines)
    assert all(line.startswith("Warning: ") for line in lines)
    digest = made.stdout.strip().removeprefix("environment:")
    assert list(
        (home / "environments" / digest).glob(
            "venv-*/lib/python*/site-packages/alpha-1.0.dist-info"
        )
    )
