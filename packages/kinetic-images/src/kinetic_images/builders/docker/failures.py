"""The output of a failed docker command → an error that says what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kinetic_images.builders.build_log import log_end
from kinetic_images.errors import (
    BuildError,
    DockerUnavailableError,
    ImageNotFoundError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_payload.errors import KineticError

_NO_ENGINE: Final = (
    "cannot connect to the docker daemon",
    "is the docker daemon running",
    "error during connect",
    "failed to connect to the docker api",
)
_SOCKET: Final = re.compile(
    r"permission denied while trying to connect to (?:the )?docker", re.IGNORECASE
)
_OF_A_STEP: Final = re.compile(r"#\d+ ")
_DENIED: Final = ("denied", "forbidden", "403")
_LOGIN: Final = ("unauthorized", "no basic auth credentials", "authentication required", "401")
_NO_BASE: Final = re.compile(
    r"\[internal\] load metadata for .*(?:not found|manifest unknown|does not exist)", re.DOTALL
)
_NETWORK: Final = (
    "connection refused",
    "connection reset",
    "i/o timeout",
    "no such host",
    "tls:",
    "too many requests",
    "server error",
    "eof",
)


def build_failure(lines: Sequence[str], image: str, platform: str) -> KineticError:
    """Return the error of a build of *image* for *platform* whose log is *lines*."""
    text = "\n".join(lines)
    engine = engine_failure(lines)
    if engine is not None:
        return engine
    shown = log_end(lines)
    if "exec format error" in text:
        return BuildError(
            f"docker cannot run programs for {platform} here, so it cannot build {image}:\n{shown}",
            hint="Install the emulation once: docker run --privileged --rm tonistiigi/binfmt --install "
            f"{platform.rpartition('/')[2]}. Or use another builder.",
        )
    if _NO_BASE.match(shown):
        return ImageNotFoundError(
            f"docker did not find the base image of {image}:\n{shown}",
            hint="Check KINETIC_BASE_IMAGE, or the line FROM of the Dockerfile.",
        )
    return BuildError(
        f"docker could not build {image}. The end of its log:\n{shown}",
        hint="The lines above are the output of the step that failed.",
    )


def push_failure(lines: Sequence[str], image: str) -> KineticError:
    """Return the error of a push of *image* that printed *lines*."""
    engine = engine_failure(lines)
    if engine is not None:
        return engine
    host = image.partition("/")[0]
    shown = "\n".join(line for line in lines if line.strip())[-2000:]
    last = (lines[-1] if lines else "").lower()
    login = f"docker login {host}"
    if host.endswith(("-docker.pkg.dev", "gcr.io")):
        login = f"gcloud auth configure-docker {host}"
    kind: type[RegistryError] = RegistryError
    hint = "The lines above were printed by docker."
    if any(word in last for word in _LOGIN):
        kind, hint = RegistryLoginError, f"Log docker in with: {login}"
    elif any(word in last for word in _DENIED):
        kind = RegistryPermissionError
        hint = (
            f"Check that you may write to {image.rpartition(':')[0]}. Log docker in with: {login}"
        )
    elif any(word in last for word in _NETWORK):
        kind, hint = RegistryUnavailableError, f"Check the network, and that {host} is running."
    return kind(f"docker could not push {image}:\n{shown}", hint=hint)


def engine_failure(lines: Sequence[str]) -> DockerUnavailableError | None:
    """Return the error if the output says that the engine itself could not be used; otherwise None."""
    # What the steps of the build print is not about this engine.
    lines = [line for line in lines if not _OF_A_STEP.match(line)]
    text = "\n".join(lines)
    if _SOCKET.search(text):
        return DockerUnavailableError(
            f"This user must not use the docker engine: {one_line(lines)}",
            hint="Add the user to the group docker, and log in again: sudo usermod -aG docker $USER",
        )
    if any(words in text.lower() for words in _NO_ENGINE):
        return DockerUnavailableError(
            f"The docker engine is not running: {one_line(lines)}",
            hint="Start it (sudo systemctl start docker, or Docker Desktop), or check DOCKER_HOST and "
            "`docker context ls`.",
        )
    return None


def one_line(lines: Sequence[str]) -> str:
    """Return *lines* in one line of at most 500 characters."""
    return " ".join(line.strip() for line in lines if line.strip())[:500]
