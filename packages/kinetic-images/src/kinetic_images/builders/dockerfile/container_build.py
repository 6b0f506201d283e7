"""`ContainerBuilder`: builds images from contexts, whichever engine runs the builds."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.dockerfile.context import BuildContext
from kinetic_images.builders.dockerfile.recipe_context import obstacle, recipe_context
from kinetic_images.builders.dockerfile.secrets import SecretsFor, no_secrets
from kinetic_images.errors import BuildInputError, UvNotFoundError
from kinetic_images.lock.addresses import INDEXES, STRATEGY, index_addresses
from kinetic_images.recipe import Recipe
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Machine

FRESH: Final = ("--pull", "--no-cache")
"""The options of `docker build` for a build that is fresh."""


@dataclass(frozen=True, kw_only=True)
class ContainerBuild:
    """One image to build from a context."""

    context: BuildContext
    image: str
    """`HOST/PATH:TAG`"""
    platform: str = "linux/amd64"
    labels: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    """Whether to build with the newest base image, and without results of earlier builds."""
    addresses: tuple[str, ...] | None = None
    """What the build fetches; None: a Dockerfile of the user, which may fetch anything."""


@dataclass(frozen=True, kw_only=True)
class ContainerBuilder(ABC):
    """Builds images from contexts, and pushes them."""

    name: str
    registries: Registry
    """Where digests are looked up."""
    secrets: SecretsFor = field(default=no_secrets, repr=False)
    """Credentials of this machine for indexes and repositories, and certificates."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for uv inside the build, such as `UV_DEFAULT_INDEX`, without credentials."""

    def obstacle(self, recipe: Recipe) -> str | None:
        """Return why no container build can make *recipe*, as a sentence; None if one can."""
        return obstacle(recipe)

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        """Build *recipe*, push it as *image* (`HOST/PATH:TAG`), and return its digest (`sha256:…`).

        Raises:
            BuildInputError: The input cannot be used; nothing was started.
            KineticError: See `run`.
        """
        problem = self.obstacle(recipe)
        if problem is not None:
            raise BuildInputError(
                problem,
                hint="Use an https address or a wheel of the package, or another KINETIC_IMAGE_BUILDER.",
            )
        environment = self.environment
        if not _builds_packages(recipe):  # Then indexes have no effect.
            unused = (*INDEXES, STRATEGY)
            environment = {name: environment[name] for name in environment if name not in unused}
        version, program = find_uv_program(recipe.target.machine)
        build = ContainerBuild(
            context=recipe_context(recipe, version, program, environment=environment),
            image=image,
            platform=f"linux/{recipe.target.architecture}",
            labels=recipe.labels,
            addresses=tuple(build_addresses(recipe, environment)),
        )
        return self._built(build, reports)

    def build_context(
        self,
        context: BuildContext,
        image: str,
        reports: BuildReports,
        *,
        fresh: bool = False,
    ) -> str:
        """Build *context* for `linux/amd64`, push it as *image*, and return its digest.

        *fresh*: with the newest base image, and without results of earlier builds.

        Raises:
            KineticError: See `run`.
        """
        build = ContainerBuild(context=context, image=image, fresh=fresh)
        return self._built(build, reports)

    def _built(self, build: ContainerBuild, reports: BuildReports) -> str:
        return self.registries.digest(build.image) or self.run(build, reports)

    @abstractmethod
    def run(self, build: ContainerBuild, reports: BuildReports) -> str:
        """Build and push an image that the registry does not have, and return its digest."""


def build_addresses(recipe: Recipe, environment: Mapping[str, str]) -> list[str]:
    """Return the addresses that the build of *recipe* fetches from.

    What is no wheel is built, with packages of the indexes that *environment* names.
    """
    indexes = index_addresses(environment) if _builds_packages(recipe) else []
    fetched = (package.address for package in recipe.packages if package.local_path is None)
    return [*fetched, *indexes]


def find_uv_program(machine: Machine) -> tuple[str, Path | None]:
    """Return the version of uv for builds, and its program here if that runs on Linux on *machine*.

    Then a build needs neither pip nor an index for it: on Linux, the program in the distribution `uv` needs
    glibc 2.17, or no C library at all.

    Raises:
        UvNotFoundError: The distribution `uv` is damaged or missing.
    """
    try:
        from uv import find_uv_bin

        version, file = importlib.metadata.version("uv"), Path(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise UvNotFoundError(
            f"Cannot find uv, which a build needs: {error}.", hint="Install it: pip install uv"
        ) from error
    # A processor of 64 bits may run a system of 32.
    runs_there = (sys.platform, platform.machine(), sys.maxsize > 2**32) == ("linux", machine, True)
    return version, file if runs_there else None


def _builds_packages(recipe: Recipe) -> bool:
    return not all(package.is_wheel for package in recipe.packages)
