"""`DockerBuilder`: build with a local docker engine, and push the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kinetic_images.builders.build_log import BuildLog
from kinetic_images.builders.builder import BuildReports
from kinetic_images.builders.docker.program import Docker, check_engine, find_docker
from kinetic_images.builders.dockerfile.container_build import (
    FRESH,
    ContainerBuild,
    ContainerBuilder,
    build_addresses,
)
from kinetic_images.builders.dockerfile.secrets import BuildSecrets
from kinetic_images.errors import BuildError, RegistryError
from kinetic_images.recipe import Recipe
from kinetic_images.registry.names import parse_reference

_PUSHED: Final = re.compile(r"digest: (sha256:[0-9a-f]{64})\b")


@dataclass(frozen=True, kw_only=True)
class DockerBuilder(ContainerBuilder):
    """Builds images with the docker of this machine.

    docker's own login is used for the push; its engine, context and configuration are those of the
    environment. The engine keeps its build cache, and does not keep the image's tag.
    """

    environ: Mapping[str, str] | None = field(default=None, repr=False)
    """The environment in which docker runs; None: that of this process."""
    name: str = "docker"

    def check(self, recipe: Recipe, image: str) -> None:
        """Refuse to build without a docker engine; whether *image* can be pushed shows only in the push.

        Raises:
            DockerNotFoundError: There is no docker with BuildKit.
            DockerUnavailableError: The engine is not running, or this user must not use it.
            DependencyError: The build would send a login unencrypted.
        """
        del image
        check_engine(find_docker(self.environ))
        self.secrets(build_addresses(recipe, self.environment))

    def run(self, build: ContainerBuild, reports: BuildReports) -> str:
        """Build and push an image that the registry does not have, and return its digest.

        Raises:
            DockerNotFoundError: There is no docker with BuildKit.
            DockerUnavailableError: The engine is not running, or this user must not use it.
            BuildError: The build failed; the message contains the end of its log.
            RegistryError: The image cannot be pushed, or the registry cannot be queried.
        """
        image, docker = build.image, find_docker(self.environ)
        check_engine(docker)
        secrets = self.secrets(build.addresses)
        log = BuildLog(secrets.clean, reports.line)
        with secrets.files() as files:
            code = docker.run(
                *("build", "--progress=plain", f"--platform={build.platform}", f"--tag={image}"),
                *(f"--label={key}={value}" for key, value in sorted(build.labels.items())),
                *(FRESH if build.fresh else ()),
                *docker.options,
                *(f"--secret=id={name},src={path}" for name, path in files.items()),
                *(f"--file={build.context.dockerfile}", "-"),
                line=log,
                write=lambda stream: build.context.write_archive(stream, compressed=False),
            )
        if code != 0:
            raise BuildError(
                f"docker could not build {image}. The end of its log:\n{log.end}",
                hint="The lines above were printed by docker.",
            )
        try:
            # Another process may have pushed it meanwhile; the tag does not change any more then.
            found = self.registries.digest(image)
            found = found or self._push(docker, image, secrets, reports)
        finally:
            _remove(docker, image)
        _remove(docker, str(parse_reference(image).at(found)))
        return found

    def _push(
        self, docker: Docker, image: str, secrets: BuildSecrets, reports: BuildReports
    ) -> str:
        """Push *image* and return its digest, as the registry names it."""
        lines: list[str] = []
        reports.line(f"Pushing {image}")
        code = docker.run("push", image, line=lambda line: lines.append(secrets.clean(line)))
        if code != 0:
            host, shown = image.partition("/")[0], "\n".join(filter(None, lines))[-2000:]
            raise RegistryError(
                f"docker could not push {image}:\n{shown}",
                hint=f"The lines above were printed by docker. If access is denied: docker login {host}, or for "
                f"Google's registries: gcloud auth configure-docker {host}",
            )
        pushed = next(filter(None, map(_PUSHED.search, reversed(lines))), None)
        found = self.registries.digest(image)
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
