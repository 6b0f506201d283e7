"""A published base image is used as it is; a job installs only what the image does not contain."""

from __future__ import annotations

import os
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from locked_project import Project, write_wheel
from small_images import push_image

from kinetic_images.bases import PACKAGES_LABEL, packages_label
from kinetic_images.builders.builder import BuildReports
from kinetic_images.ensure import ImageRequest, ImageServices
from kinetic_images.errors import DependencyError, ImageNotFoundError
from kinetic_images.prebuilt import PrebuiltImage, find_prebuilt, write_environment
from kinetic_images.registry.registry import Registry
from kinetic_images.testing.registry.server import RegistryServer
from kinetic_payload.http.retry import RetryPolicy

PYTHON = "{}.{}".format(*sys.version_info)
COMMAND = "kinetic build-image --repo HERE"
JAX = "0.10.2" if sys.version_info < (3, 12) else "0.12.0.1"


class Silent(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *arguments: object) -> None:
        pass


class World:
    """A registry with a base image, and a project with an index."""

    def __init__(self, project: Project, server: RegistryServer) -> None:
        self.project = project
        self.server = server
        self.registry = Registry(environ={}, google=lambda: None, policy=RetryPolicy(limit=0.5))
        self.base = f"{server.host}/base:1"
        for name, version in (
            ("jax", JAX),
            ("alpha", "1.0"),
            ("alpha", "2.0"),
            ("beta", "1.0"),
            ("cloudpickle", "3.0"),
        ):
            project.wheel(name, version)
        self.checked = 0

    def publish(self, packages: dict[str, str] | None, **config: Any) -> None:
        labels = {} if packages is None else {PACKAGES_LABEL: packages_label(packages)}
        push_image(self.server.host, self.registry, Labels=labels, **config)

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
            registry=self.registry,
            builders=list,
            environ=self.project.environ,
            reports=BuildReports(),
            resolved=self._count,
        )
        return find_prebuilt(replace(request, **more), services, command=COMMAND)

    def installed(self, **more: Any) -> dict[str, str]:
        return {package.name: package.version for package in self.find(**more).packages}


@pytest.fixture
def world(project: Project) -> Iterator[World]:
    handler = partial(Silent, directory=str(project.packages))
    with RegistryServer() as server, ThreadingHTTPServer(("127.0.0.1", 0), handler) as packages:
        threading.Thread(target=packages.serve_forever, daemon=True).start()
        project.links = f"http://127.0.0.1:{packages.server_address[1]}/"
        yield World(project, server)
        packages.shutdown()


def test_only_what_the_image_does_not_contain_is_installed(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0", "beta": "1.0"})
    world.project.require("alpha", "beta")
    assert world.installed() == {"alpha": "2.0"}
    assert world.checked == 1


def test_versions_of_the_image_are_chosen_where_the_requirements_allow_it(world: World) -> None:
    world.publish({"jax": "0.1", "cloudpickle": "3.0", "alpha": "1.0"})
    world.project.wheel("jax", "0.1")
    world.project.require("alpha", "beta")
    assert world.installed() == {"beta": "1.0"}
    world.project.require("alpha>1")
    assert world.installed() == {"alpha": "2.0"}


@pytest.mark.parametrize(
    "word",
    ["numpy", "numpy==", "==1", 'a"b==1', "a==b\\n", "--index-url==1", "a===1", "\x1b[1m==1"],
)
def test_a_word_of_the_label_that_names_no_version_is_left_out(world: World, word: str) -> None:
    known = packages_label({"jax": JAX, "cloudpickle": "3.0", "beta": "1.0"})
    push_image(world.server.host, world.registry, Labels={PACKAGES_LABEL: f"{word} {known}"})
    world.project.require("alpha", "beta")
    assert world.installed() == {"alpha": "2.0"}


def test_an_image_that_contains_everything_needs_nothing(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0", "beta": "1.0"})
    world.project.require("beta")
    found = world.find()
    assert found.packages == found.addresses == ()
    assert "@sha256:" in found.base.reference


def test_an_image_without_a_list_of_packages_is_used_with_a_note(world: World) -> None:
    world.publish(None)
    world.project.require("beta")
    assert world.installed() == {"beta": "1.0", "jax": JAX, "cloudpickle": "3.0"}
    assert any("does not list its packages" in note for note in world.find().notes)


def test_if_nothing_changed_there_is_one_head(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    world.project.require("alpha")
    first = world.find()
    world.server.requests.clear()
    world.project.require("# a comment", "Alpha")
    assert world.find() == first
    assert [request.method for request in world.server.requests] == ["HEAD"]
    assert world.project.runs() == 1


def test_a_file_that_has_vanished_is_found_out_before_a_job_starts_and_once_a_day(
    world: World,
) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    world.project.require("alpha")
    assert world.installed() == {"alpha": "2.0"}
    (world.project.packages / "alpha-2.0-py3-none-any.whl").unlink()
    assert world.installed() == {"alpha": "2.0"}
    (mark,) = (world.project.folder / "home/cache/images/checked").iterdir()
    os.utime(mark, (0, 0))
    assert world.installed() == {"alpha": "1.0"}
    assert world.project.runs() == 2


def test_an_image_that_is_published_again_is_used(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    world.project.require("alpha")
    assert world.installed() == {"alpha": "2.0"}
    world.publish({"jax": JAX, "cloudpickle": "3.0", "alpha": "1.0"})
    assert world.installed() == {}


def test_an_image_that_was_not_published_is_refused_with_the_command(world: World) -> None:
    world.project.require("alpha")
    with pytest.raises(ImageNotFoundError) as caught:
        world.find()
    assert world.base in caught.value.message
    assert COMMAND in (caught.value.hint or "")
    assert world.checked == 0


def test_an_image_with_another_python_is_refused_with_the_command(world: World) -> None:
    world.publish({}, Env=["PYTHON_VERSION=3.9.1"])
    world.project.require("alpha")
    with pytest.raises(ImageNotFoundError, match=r"Python 3\.9") as caught:
        world.find()
    assert COMMAND in (caught.value.hint or "")


def test_a_signed_address_is_refused_by_its_line_and_not_shown(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    world.project.wheel("beta", "1.0")
    world.project.require(
        "alpha", f"beta @ {world.project.links}beta-1.0-py3-none-any.whl?key=s3cr3t"
    )
    with pytest.raises(
        DependencyError, match=r"requirements\.txt:\d+: the address of beta"
    ) as caught:
        world.find()
    assert "s3cr3t" not in f"{caught.value} {caught.value.hint}"
    assert world.checked == 0


def test_a_package_without_a_wheel_is_refused_by_its_line(world: World) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    world.project.source("delta", "1.0")
    world.project.require("alpha", "delta")
    with pytest.raises(
        DependencyError, match=r"requirements\.txt:\d+: delta is the source"
    ) as caught:
        world.find()
    assert "bundled" in (caught.value.hint or "")
    assert world.checked == 0


def test_what_is_installed_is_written_with_its_digests(world: World, tmp_path: Path) -> None:
    world.publish({"jax": JAX, "cloudpickle": "3.0"})
    local = tmp_path / "own" / "gamma-1.0-py3-none-any.whl"
    write_wheel(local, "gamma", "1.0")
    world.project.require(f"--find-links {local.parent}", "alpha", "gamma")
    folder = tmp_path / "environment"
    folder.mkdir()
    packages = world.find().packages
    write_environment(packages, PYTHON, folder)
    lock = tomllib.loads((folder / "pylock.toml").read_text())
    alpha, gamma = lock["packages"]
    assert alpha["wheels"][0]["url"].startswith("http://")
    assert gamma["wheels"][0]["path"] == f"packages/{local.name}"
    assert (folder / "packages" / local.name).read_bytes() == local.read_bytes()
    local.write_bytes(b"changed")
    again = tmp_path / "again"
    again.mkdir()
    with pytest.raises(DependencyError, match="has changed"):
        write_environment(packages, PYTHON, again)
