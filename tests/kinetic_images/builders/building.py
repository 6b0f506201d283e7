"""Recipes, registries in memory, and a Cloud Build with its bucket, for the tests of builders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from locked_project import package

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.cloud_build import CloudBuildBuilder
from kinetic_images.builders.dockerfile.context import BuildContext, ContextFile
from kinetic_images.lock.packages import LockedPackage
from kinetic_images.recipe import Recipe
from kinetic_images.targets import Target
from kinetic_servers.cloud_build import CloudBuildServer, PythonSteps, Step
from kinetic_servers.gcs import GcsServer

BASE = f"127.0.0.1:5000/base/python@sha256:{'0' * 64}"
IMAGE = "registry.test/kn/bundled:0123abc"


def a_recipe(*packages: LockedPackage, **fields: Any) -> Recipe:
    """Return a recipe with *packages*."""
    return Recipe(
        **{
            "target": Target(python="3.11"),
            "base": BASE,
            "packages": packages or (package(),),
            "files": {"/app/remote_runner.py": b"print('hello')\n"},
            **fields,
        }
    )


@dataclass
class Images:
    """Registries that have the images in `known`: address → digest."""

    known: dict[str, str] = field(default_factory=dict)

    def digest(self, image: str) -> str | None:
        """Return the digest of an image, or None."""
        return self.known.get(image)


@dataclass
class Cloud:
    """Cloud Build, a bucket, and a builder that uses them."""

    builds: CloudBuildServer
    buckets: GcsServer
    builder: CloudBuildBuilder
    steps: PythonSteps
    images: Images
    lines: list[str]
    program: list[Callable[[Step], int]]
    """The function that runs in place of docker; the last one counts."""

    def build(self, **settings: Any) -> str:
        """Build a small image with other *settings*, and return its digest."""
        builder = replace(self.builder, settings=replace(self.builder.settings, **settings))
        context = BuildContext({"Dockerfile": ContextFile(b"FROM scratch\n")})
        return builder.build_context(context, IMAGE, self.reports)

    @property
    def reports(self) -> BuildReports:
        """Reports that `lines` keeps."""
        return BuildReports(line=self.lines.append)

    @property
    def only(self) -> Any:
        """The only build."""
        (found,) = self.builds.builds.values()
        return found


def successful(step: Step) -> int:
    """Pretend to build an image."""
    step.write("#1 [internal] load build definition\n#1 DONE 0.0s\n")
    return 0


def until(ready: Callable[[], Any], seconds: float = 20) -> None:
    """Wait until *ready*."""
    done = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if ready():
            return
        done.wait(0.02)
    raise TimeoutError
