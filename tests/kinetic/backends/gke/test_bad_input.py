"""Bad input for images is refused at submit: by file and line, before anything is uploaded, built or billed.

One case for each step of a submit; `tests/kinetic_images` has the other mistakes of each step.
"""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from api_server import StandIn
from file_server import FileServer, running_file_server
from locked_project import Project as Packages
from small_images import push_image

import kinetic
from kinetic.backends.gke.images import builders
from kinetic.errors import KineticError
from kinetic.jobs.runner import modules_in_jobs
from kinetic_images.errors import (
    DependencyError,
    ImageNotFoundError,
    InstallError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.registry.registry import Registry
from kinetic_images.uv import find_uv
from kinetic_k8s.errors import NotPermittedError
from kinetic_payload.errors import BucketNotFoundError
from kinetic_payload.http.retry import RetryPolicy
from kinetic_runner.bundle import bundle_for
from kinetic_servers.gcs import GcsServer
from kinetic_servers.registry import Access, RegistryServer, User

PASSWORD = "pa55-of-mine"
ALL = frozenset({"pull", "push"})
PULL = frozenset({"pull"})
REQUIREMENTS = "requirements.txt"
PYPROJECT = "pyproject.toml"
LOCKED = "[project]\nname = 'users-project'\nversion = '1'\nrequires-python = '>=3.11'\n"


class World:
    """A project, its packages, and all servers that a submit to a cluster needs; they record requests."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.packages = Packages(folder)
        self.root = self.packages.root
        self.api: StandIn = running.enter_context(StandIn())
        self.index: FileServer = running.enter_context(running_file_server())
        self.other: FileServer = running.enter_context(running_file_server())
        self.bucket = running.enter_context(GcsServer())
        self.bucket.create_bucket("jobs")
        access = Access(
            {"me": User(password="right", grants={"kn/*": ALL, "base": ALL, "theirs/*": PULL})}
        )
        self.registry = running.enter_context(RegistryServer(access=access))
        self.logins = folder / "docker"
        self.logins.mkdir()
        self.log_in("right")
        self.client = Registry(environ={"DOCKER_CONFIG": str(self.logins)}, google=lambda: None)
        self.base = push_image(self.registry.host, self.client)
        for name, version in (("jax", "0.12.0.1"), ("alpha", "1.0"), ("keras", "3.0")):
            self.packages.wheel(name, version)
        self.packages.wheel("cloudpickle", importlib.metadata.version("cloudpickle"))
        self.packages.wheel("google_cloud_storage", "9.0")
        self.packages.wheel("gamma", "1.0", "alpha>=5")
        self.options: dict[str, Any] = {}
        self.environ = {
            **self.packages.environ,
            # The same address in a form that is not refused: here, pods need not reach it.
            "STORAGE_EMULATOR_HOST": self.bucket.endpoint.replace("127.0.0.1", "127.1"),
            "KUBECONFIG": str(self.api.kubeconfig(folder)),
            "DOCKER_CONFIG": str(self.logins),
            "KINETIC_KUBE_CONTEXT": "standin",
            "KINETIC_HOME": str(folder / "kinetic"),
            "KINETIC_STORE": "gs://jobs",
            "KINETIC_BUILDS_STORE": "gs://jobs",
            "KINETIC_IMAGE_REPO": f"{self.registry.host}/kn",
            "KINETIC_BASE_IMAGE": self.base,
        }

    def log_in(self, password: str) -> None:
        """Put the password for the registry into docker's configuration."""
        auth = base64.b64encode(f"me:{password}".encode()).decode()
        config = {"auths": {self.registry.host: {"auth": auth}}}
        (self.logins / "config.json").write_text(json.dumps(config))

    def write(self, name: str, *lines: str) -> None:
        (self.root / name).write_text("\n".join(lines))

    def require(self, *lines: str) -> None:
        """Write requirements; the first of *lines* is line 3."""
        self.packages.require(*lines)

    def writes(self) -> list[str]:
        """Return what was written anywhere, or attempted to be."""
        to_bucket = [
            f"{each.method} {each.path}"
            for each in self.bucket.requests
            if each.method not in ("GET", "HEAD")
        ]
        to_registry = [
            f"{each.method} {each.path}"
            for each in self.registry.requests
            if each.method not in ("GET", "HEAD")
        ]
        return [*self.api.writes, *to_bucket, *to_registry]

    def submit(self) -> object:
        """Submit a job of the project to the cluster."""
        (self.root / "job_of_project.py").write_text("def train():\n    return 1\n")
        importlib.invalidate_caches()
        train = importlib.import_module("job_of_project").train
        return kinetic.run(**{"accelerator": "cpu", "backend": "gke", **self.options})(
            train
        ).run_async()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runner's bundle: making one takes longer than a refused submit."""
    return bundle_for(tmp_path_factory.mktemp("cache"), modules_in_jobs(), bytecode=False)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: Path) -> Iterator[World]:
    with ExitStack() as running:
        found = World(tmp_path, running)
        (tmp_path / "kinetic" / "cache").mkdir(mode=0o700, parents=True)
        shutil.copy2(runner, tmp_path / "kinetic" / "cache")
        variables = os.environ  # noqa: TID251 - settings of this machine must not apply
        for name in [name for name in variables if name.startswith(("KINETIC_", "UV_", "DOCKER_"))]:
            monkeypatch.delenv(name)
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(found.root)
        monkeypatch.syspath_prepend(found.root)
        impatient = functools.cache(
            lambda limit=None: Registry(google=lambda: None, policy=RetryPolicy(limit=0.2))
        )
        monkeypatch.setattr(builders, "registries", impatient)
        for log in (found.bucket.requests, found.registry.requests):
            log.clear()
        yield found
        sys.modules.pop("job_of_project", None)


@dataclass
class Case:
    """A kind of bad input."""

    name: str
    arrange: Callable[[World], object]
    error: type[Exception]
    message: str
    """What the message matches."""
    hint: str = ""
    """What the hint matches."""


def lines(*given: str) -> Callable[[World], object]:
    """Return what requires *given* beginning at line 3."""
    return lambda world: world.require(*given)


def setting(name: str, value: str) -> Callable[[World], object]:
    """Return what sets a variable."""

    def arrange(world: World) -> None:
        world.environ[name] = value.format(host=world.registry.host)

    return arrange


def image(text: str) -> Callable[[World], object]:
    """Return what names a container image."""

    def arrange(world: World) -> None:
        world.options["container_image"] = text.format(host=world.registry.host)

    return arrange


def wrong_password_of_index(world: World) -> None:
    world.index.required = "Basic of another user"
    url = world.index.url("/simple").replace("//", f"//me:{PASSWORD}@")
    world.write(REQUIREMENTS, f"--index-url {url}", "", "alpha")


def locked_by_uv(*later: str, settings: str = "") -> Callable[[World], object]:
    """Return what declares alpha, locks it with *settings* of uv, and then declares alpha and *later*."""

    def arrange(world: World) -> None:
        index = f"[tool.uv]\nno-index = true\nfind-links = ['{world.packages.packages}']\n"
        world.write(PYPROJECT, LOCKED, "dependencies = ['alpha']", index + settings)
        environ = world.packages.environ | {"UV_PYTHON": sys.executable}
        subprocess.run([find_uv().program, "lock", "-q"], cwd=world.root, env=environ, check=True)
        world.packages.wheel("alpha", "2.0")
        world.write(PYPROJECT, LOCKED, f"dependencies = {['alpha', *later]}", index + settings)

    return arrange


def another_python(world: World) -> None:
    world.write(PYPROJECT, LOCKED.replace(">=3.11", "~=3.99"))


def jax_for_gpus(world: World) -> None:
    world.options["accelerator"] = "tpu-v5litepod-1"
    world.require("jax[cuda12]  # kn:keep")


def base_with(**how: Any) -> Callable[[World], object]:
    """Return what uses another base image."""

    def arrange(world: World) -> None:
        world.environ["KINETIC_BASE_IMAGE"] = push_image(world.registry.host, world.client, **how)

    return arrange


def missing_bucket(world: World) -> None:
    world.environ |= {"KINETIC_STORE": "gs://none", "KINETIC_ZONE": "us-central1-a"}


NO_PYTHON: Any = {"tag": "empty", "files": ["bin/busybox"], "Env": []}


def no_python(world: World) -> None:
    world.options["container_image"] = push_image(world.registry.host, world.client, **NO_PYTHON)


def other_processor(world: World) -> None:
    digest = world.registry.add_image("kn/arm", "1", architectures=("arm64",))
    assert digest
    world.options["container_image"] = f"{world.registry.host}/kn/arm:1"


def no_secret_for_the_login_of_an_index(world: World) -> None:
    world.api.forbidden.add("secrets")
    world.index.required = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    for path in world.packages.packages.iterdir():
        world.index.add(f"/{path.name}", path.read_bytes())
    links = "".join(f'<a href="/{path[1:]}">x</a>\n' for path in world.index.files)
    world.index.add("/", links.encode())
    host = world.registry.host
    push_image(host, world.client, name="kn/base-cpu", tag=kinetic.__version__)
    world.options["container_image"] = "prebuilt"
    world.environ["KINETIC_BASE_IMAGE_REPO"] = f"{host}/kn"
    world.environ["KINETIC_BUILDS_STORE"] = ""  # What was resolved is kept there.
    world.packages.links = world.index.url("/").replace("//", f"//me:{PASSWORD}@", 1)
    world.require("alpha")


def login_of_an_index_by_plain_http(world: World) -> None:
    no_secret_for_the_login_of_an_index(world)
    path = next(path for path in world.index.files if path.startswith("/alpha"))
    listed = world.other.add(path, world.index.files[path])
    page = world.index.files["/"].decode()
    world.index.add("/", page.replace(f'"{path}"', f'"{listed}"').encode())


CASES = (
    Case("a project outside", lines("-e ../other"), DependencyError, r"requirements\.txt:3: '-e \.\./other' is a path"),
    Case("no version that fits another", lines("alpha", "gamma"), InstallError, r"requirements\.txt:4: gamma"),
    Case("a syntax error", lines("!!"), DependencyError, r"requirements\.txt:3: '!!' is not a requirement"),
    Case("a wrong password of an index", wrong_password_of_index, InstallError, r"^The package index .*requirements\.txt:1: --index-url\) does not accept the login: 401", "~/.netrc"),
    Case("a stale lock", locked_by_uv("keras"), DependencyError, r"uv\.lock: the lock is stale: it does not fit .*pyproject\.toml", "uv lock"),
    Case("a lock for another system", locked_by_uv(settings="environments = [\"sys_platform == 'darwin'\"]"), DependencyError, r"uv\.lock: the lock does not apply to Python 3\.\d+ on x86_64-manylinux.* environments are: sys_platform == 'darwin'\.", "uv lock"),
    Case("another Python", another_python, DependencyError, r"pyproject\.toml requires Python ~=3\.99, and the job would run on Python 3\.1\d\.", "requires-python"),
    Case("a JAX for GPUs", jax_for_gpus, DependencyError, r"requirements\.txt:3: jax\[cuda12\] .* runs on a TPU", "tool.kinetic.gpu"),
    Case("a missing bucket", missing_bucket, BucketNotFoundError, "no bucket gs://none", "gcloud storage buckets create gs://none"),
    Case("a missing image", image("{host}/kn/none:1"), ImageNotFoundError, "kn/none:1"),
    Case("an image of another processor", other_processor, ImageNotFoundError, "kn/arm, .* is not for linux/amd64"),
    Case("an image without Python", no_python, ImageNotFoundError, "base:empty contains no python3", "install Python"),
    Case("a missing base", setting("KINETIC_BASE_IMAGE", "{host}/kn/none:1"), ImageNotFoundError, "kn/none:1", "KINETIC_BASE_IMAGE"),
    Case("a base with another Python", base_with(tag="old", Env=["PYTHON_VERSION=3.4.1"]), ImageNotFoundError, r"Python 3\.4, .* Python 3\."),
    Case("a repository without permission", setting("KINETIC_IMAGE_REPO", "{host}/others"), RegistryPermissionError, "others/bundled"),
    Case("a wrong password of the registry", lambda world: world.log_in(PASSWORD), RegistryLoginError, "127.0.0.1"),
    Case("no permission for the login of an index", no_secret_for_the_login_of_an_index, NotPermittedError, "secrets", "permits 'create' on 'secrets'"),
    Case("a login of an index for an http address that it lists", login_of_an_index_by_plain_http, DependencyError, r"^http://127\.0\.0\.1:\d+/alpha-1\.0\S+ is fetched by plain http, and the login for 127\.0\.0\.1 would", "https addresses"),
    Case("a registry that is not available", lambda world: world.registry.faults.add(method="HEAD", path="*/kn/bundled/manifests/*", status=503, times=None), RegistryUnavailableError, "kn/bundled"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_refused_with_its_place_before_anything_is_written(
    world: World,
    case: Case,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world.require("alpha")
    case.arrange(world)
    if (world.root / PYPROJECT).exists():
        (world.root / REQUIREMENTS).unlink()
    for name, value in world.environ.items():
        monkeypatch.setenv(name, value)
    for log in (world.bucket.requests, world.registry.requests):
        log.clear()

    with pytest.raises(case.error, match=case.message) as caught:
        world.submit()

    error = caught.value
    assert isinstance(error, KineticError)
    hint = error.hint or ""
    assert case.hint in hint
    assert hint
    printed = "".join([*capfd.readouterr(), *traceback.format_exception(error)])
    assert PASSWORD not in printed
    lines_of_uv = [
        line for line in printed.splitlines() if line.startswith(("error: ", "  cause: "))
    ]
    assert len(lines_of_uv) == len(set(lines_of_uv)), "uv's output is printed twice"
    assert printed.count("needs to be updated") == 0, "uv's output is replaced by what it means"
    assert world.writes() == []


def test_a_repository_that_may_only_be_read_is_refused_before_anything_is_uploaded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.require("alpha")
    monkeypatch.setenv("KINETIC_IMAGE_REPO", f"{world.registry.host}/theirs")

    with pytest.raises(RegistryPermissionError, match="theirs/bundled") as caught:
        world.submit()

    assert caught.value.hint
    assert world.api.writes == []
    kept = {name.partition("/")[0] for name in world.bucket.names("jobs")}
    assert kept <= {"builds"}  # What was resolved.


def test_the_input_that_the_cases_change_is_accepted(world: World) -> None:
    world.require("alpha")

    assert world.submit()

    assert world.api.writes
    assert any("/bundled/manifests/" in write for write in world.writes())


def test_another_python_in_the_image_is_a_warning_without_a_console(world: World) -> None:
    old = push_image(world.registry.host, world.client, Env=["PYTHON_VERSION=3.9.1"])
    world.options["container_image"] = old

    with pytest.warns(UserWarning, match=r"says that it has Python 3\.9"):
        world.submit()


def test_pathways_components_are_those_of_the_images_jax_and_a_failed_look_is_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://nowhere.invalid:x")
    served = [{"versions": [{"groupVersion": "jobset.x-k8s.io/v1alpha2"}]}]
    world.api.objects["/apis"] = {"groups": served}
    world.packages.wheel("pathwaysutils", "1.0")
    world.require("jax==0.12.0.1")
    world.options |= {"backend": "pathways", "accelerator": "v6e-16"}

    with pytest.warns(UserWarning, match=r"tag jax-0\.12\.0\.1 could not be checked"):
        world.submit()

    assert '{"name": "KINETIC_PATHWAYS", "value": "latest"}' in json.dumps(
        world.api.created("JobSet")
    )
