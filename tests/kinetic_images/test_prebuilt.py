"""A published base image is used as it is; a job installs only packages that the image lacks."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer
from locked_project import Project, package, write_wheel
from small_images import push_image

from kinetic_images.bases import PACKAGES_LABEL, packages_label, packages_of
from kinetic_images.builders.builder import BuildReports
from kinetic_images.ensure import ImageRequest, ImageServices
from kinetic_images.errors import DependencyError, ImageNotFoundError
from kinetic_images.prebuilt import PrebuiltImage, find_prebuilt, write_environment
from kinetic_images.registry.oci import parse_config
from kinetic_images.registry.registry import Registry
from kinetic_payload.http.retry import RetryPolicy
from kinetic_servers.registry.server import RegistryServer

PYTHON = "{}.{}".format(*sys.version_info)
COMMAND = "kinetic build-image --repo HERE"
JAX = "0.10.2" if sys.version_info < (3, 12) else "0.12.0.1"
REGISTRY = Registry(environ={}, google=lambda: None, policy=RetryPolicy(limit=0.5))
KNOWN = {"jax": JAX, "cloudpickle": "3.0"}


class World:
    """A registry with a base image, and a project with an index."""

    def __init__(self, project: Project, server: RegistryServer) -> None:
        self.project = project
        self.server = server
        self.base = f"{server.host}/base:1"
        for name, version in (
            ("jax", JAX),
            ("jax", "0.1"),
            ("alpha", "1.0"),
            ("alpha", "2.0"),
            ("beta", "1.0"),
            ("cloudpickle", "3.0"),
        ):
            project.wheel(name, version)
        self.checked = 0

    def publish(self, packages: dict[str, str] | None, **config: Any) -> None:
        labels = {} if packages is None else {PACKAGES_LABEL: packages_label(packages)}
        push_image(self.server.host, REGISTRY, Labels=labels, **config)

    def _count(self) -> None:
        self.checked += 1

    def find(self, **more: Any) -> PrebuiltImage:
        request = ImageRequest(
            dependencies=self.project.dependencies(),
            category="cpu",
            python=PYTHON,
            base=self.base,
            repository=self.base,
            preferences=("cloudpickle==3.0",),
        )
        services = ImageServices(
            home=self.project.folder / "home",
            registry=REGISTRY,
            builders=list,
            environ=self.project.environ,
            reports=BuildReports(),
            resolved=self._count,
        )
        return find_prebuilt(replace(request, **more), services, command=COMMAND)

    def installed(self, **more: Any) -> dict[str, str]:
        return {package.name: package.version for package in self.find(**more).packages}


@pytest.fixture
def world(packages: FileServer, project: Project, server: RegistryServer) -> World:
    return World(project, server)


@pytest.mark.parametrize(
    ("contained", "required", "installed"),
    [
        (KNOWN | {"beta": "1.0"}, ["alpha", "beta"], {"alpha": "2.0"}),
        (KNOWN | {"beta": "1.0"}, ["beta"], {}),
        ({"jax": "0.1", "cloudpickle": "3.0", "alpha": "1.0"}, ["alpha", "beta"], {"beta": "1.0"}),
        ({"jax": "0.1", "cloudpickle": "3.0", "alpha": "1.0"}, ["alpha>1"], {"alpha": "2.0"}),
        (None, ["beta"], {"beta": "1.0", **KNOWN}),
    ],
    ids=["one is missing", "complete", "older versions fit", "one does not fit", "no list"],
)
def test_only_packages_that_the_image_lacks_are_installed(
    world: World,
    contained: dict[str, str] | None,
    required: list[str],
    installed: dict[str, str],
) -> None:
    world.publish(contained)
    world.project.require(*required)
    found = world.find()
    assert {package.name: package.version for package in found.packages} == installed
    assert len(found.addresses) == len(installed)
    assert "@sha256:" in found.base.reference
    assert any("not list its packages" in note for note in found.notes) is (contained is None)
    assert world.checked == 1


@pytest.mark.parametrize(
    "word",
    ["numpy", "numpy==", "==1", 'a"b==1', "a==b\\n", "--index-url==1", "a===1", "\x1b[1m==1"],
)
def test_a_word_of_the_label_that_names_no_version_is_left_out(word: str) -> None:
    config = parse_config(
        b'{"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": []}, "config": {}}'
    )
    assert packages_of(config) is None
    labels = {PACKAGES_LABEL: f"{word} {packages_label(KNOWN)} Beta_x==1"}
    assert packages_of(replace(config, labels=labels)) == KNOWN | {"beta-x": "1"}


def test_another_cuda_than_that_of_the_image_is_refused(world: World) -> None:
    world.project.wheel("jax_cuda13_plugin")
    world.publish(KNOWN | {"jax-cuda12-plugin": "1.0"})
    world.project.require("jax-cuda13-plugin")
    with pytest.raises(DependencyError, match=r"jax-cuda13-plugin, .* has jax-cuda12-plugin"):
        world.find()


def test_if_nothing_changed_there_is_one_head(world: World) -> None:
    world.publish(KNOWN)
    world.project.require("alpha")
    first = world.find()
    world.server.requests.clear()
    world.project.require("# a comment", "Alpha")
    assert world.find() == first
    assert [request.method for request in world.server.requests] == ["HEAD"]
    assert world.project.runs() == 1

    world.publish(KNOWN | {"alpha": "1.0"})  # It is published again.
    assert world.installed() == {}


@pytest.mark.parametrize("python", [None, "3.9.1"])
def test_an_image_that_is_missing_or_has_another_python_is_refused_with_the_command(
    world: World, python: str | None
) -> None:
    world.project.require("alpha")
    if python:
        world.publish({}, Env=[f"PYTHON_VERSION={python}"])
    with pytest.raises(ImageNotFoundError, match=r"Python 3\.9" if python else "base:1") as caught:
        world.find()
    assert COMMAND in (caught.value.hint or "")
    assert world.checked == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("beta @ {links}beta-1.0-py3-none-any.whl?key=s3cr3t", "the address of beta"),
        ("delta", "delta is the source"),
    ],
)
def test_a_package_that_a_job_cannot_install_is_refused_by_its_line(
    world: World, line: str, message: str
) -> None:
    world.publish(KNOWN)
    world.project.source("delta", "1.0")
    world.project.require("alpha", line.format(links=world.project.links))
    with pytest.raises(DependencyError, match=rf"requirements\.txt:4: {message}") as caught:
        world.find()
    assert "bundled" in (caught.value.hint or "")
    assert "s3cr3t" not in str(caught.value)
    assert world.checked == 0


def test_the_environment_of_a_job_is_a_lock_with_digests_and_local_wheels(tmp_path: Path) -> None:
    local = tmp_path / "own" / "gamma-1.0-py3-none-any.whl"
    digest = write_wheel(local, "gamma", "1.0")

    packages = (
        package("alpha", "1.0", address="http://h/alpha.whl"),
        package("gamma", "1.0", sha256=digest, address=local.as_uri()),
    )
    for name in ("environment", "again"):
        (tmp_path / name).mkdir()

    write_environment(packages, PYTHON, tmp_path / "environment")

    lock = tomllib.loads((tmp_path / "environment/pylock.toml").read_text())
    alpha, gamma = (each["wheels"][0] for each in lock["packages"])
    assert alpha["url"] == "http://h/alpha.whl"
    assert gamma["path"] == f"packages/{local.name}"
    assert gamma["hashes"] == {"sha256": digest}
    assert (tmp_path / "environment/packages" / local.name).read_bytes() == local.read_bytes()
    local.write_bytes(b"changed")
    with pytest.raises(DependencyError, match="has changed"):
        write_environment(packages, PYTHON, tmp_path / "again")
