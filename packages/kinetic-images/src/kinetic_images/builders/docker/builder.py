"""`DockerBuilder`: build with a local docker engine, and push the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kinetic_images.builders.build_log import LogLines
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.docker.failures import build_failure, push_failure
from kinetic_images.builders.docker.program import Docker, find_docker
from kinetic_images.builders.dockerfile.context import BuildContext
from kinetic_images.builders.dockerfile.recipe_context import obstacle, recipe_context
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.builders.dockerfile.uv_program import find_uv_program
from kinetic_images.builders.image_lookup import ImageLookup, existing_digest, split_image
from kinetic_images.errors import BuildError
from kinetic_images.recipe import Recipe

_PUSHED: Final = re.compile(r"digest: (sha256:[0-9a-f]{64})\b")


@dataclass(frozen=True, kw_only=True)
class DockerBuilder:
    """Builds images with the docker of this machine.

    docker's own login is used for the push; its engine, context and configuration are those of the
    environment. The engine keeps its build cache, and does not keep the image's tag.
    """

    registries: ImageLookup
    """Where digests are looked up."""
    secrets: BuildSecrets = field(default_factory=BuildSecrets)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for uv inside the build, such as `UV_DEFAULT_INDEX`, without credentials."""
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment in which docker runs; None: that of this process."""
    name: str = "docker"

    def obstacle(self, recipe: Recipe) -> str | None:
        """Return why no container build can make *recipe*, as a sentence; None if one can."""
        return obstacle(recipe)

    def check(self, image: str) -> None:
        """Do nothing: docker's own login counts, which only a push shows."""

    def build(self, recipe: Recipe, image: str, reports: BuildReports) -> str:
        """Build *recipe*, push it as *image* (`HOST/PATH:TAG`), and return its digest (`sha256:…`).

        Raises:
            DockerNotFoundError: There is no docker with BuildKit.
            DockerUnavailableError: The engine is not running, or this user must not use it.
            BuildError: The build failed; the message contains the end of its log.
            RegistryError: The image cannot be pushed, or the registry cannot be queried.
        """
        uv = find_uv_program(recipe.target)
        context = recipe_context(recipe, uv, environment=self.environment)
        platform = f"linux/{recipe.target.architecture}"
        return self.build_context(context, image, reports, platform=platform, labels=recipe.labels)

    def build_context(
        self,
        context: BuildContext,
        image: str,
        reports: BuildReports,
        *,
        platform: str,
        labels: Mapping[str, str],
    ) -> str:
        """Build *context* for *platform* (`linux/amd64`), push it as *image*, and return its digest.

        Raises:
            KineticError: See `build`.
        """
        split_image(image)
        docker = find_docker(self.environ)
        found = existing_digest(self.registries, image)
        if found is not None:
            return found
        self._build(docker, context, image, reports, platform, labels)
        try:
            # Another process may have pushed it meanwhile; the tag does not change any more then.
            found = existing_digest(self.registries, image) or self._push(docker, image, reports)
        finally:
            _remove(docker, image)
        _remove(docker, f"{split_image(image)[0]}@{found}")
        return found

    def _build(
        self,
        docker: Docker,
        context: BuildContext,
        image: str,
        reports: BuildReports,
        platform: str,
        labels: Mapping[str, str],
    ) -> None:
        lines = LogLines(self.secrets.clean, reports.line)
        with self.secrets.files() as files:
            given = [f"--secret=id={name},src={path}" for name, path in files.items()]
            code = docker.run(
                *("build", "--progress=plain", f"--platform={platform}", f"--tag={image}"),
                *(f"--label={key}={value}" for key, value in sorted(labels.items())),
                *given,
                *(f"--file={context.dockerfile}", "-"),
                line=lines,
                write=lambda stream: context.write_archive(stream, compressed=False),
            )
        if code != 0:
            raise build_failure(lines.kept, image, platform)

    def _push(self, docker: Docker, image: str, reports: BuildReports) -> str:
        """Push *image* and return its digest, as the registry names it."""
        lines: list[str] = []
        reports.line(f"Pushing {image}")
        code = docker.run("push", image, line=lambda line: lines.append(self.secrets.clean(line)))
        if code != 0:
            raise push_failure(lines, image)
        pushed = next(filter(None, map(_PUSHED.search, reversed(lines))), None)
        found = existing_digest(self.registries, image)
        if found is None or (pushed is not None and pushed[1] != found):
            raise BuildError(
                f"docker pushed {image} as {pushed[1] if pushed else 'an unknown digest'}, and the registry "
                f"now has {found or 'no image of that tag'}.",
                hint="Another process may have changed the tag. Build again.",
            )
        return found


def _remove(docker: Docker, image: str) -> None:
    """Let the engine forget *image*; its build cache keeps the layers. It is no error if there is none."""
    docker.run("image", "rm", image, line=lambda _: None)
