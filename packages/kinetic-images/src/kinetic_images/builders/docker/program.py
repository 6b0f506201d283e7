"""The program docker: find one that can build with secrets, and run it."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from kinetic_images.errors import DockerNotFoundError, DockerUnavailableError
from kinetic_images.uv import inherited
from kinetic_payload.processes import signal_group
from kinetic_payload.threads import check_wanted

_POLL: Final = 0.1
"""Seconds between checks whether the wait should be stopped."""
_GRACE: Final = 2.0
"""Seconds that docker gets to end before it is killed."""
_ANSWER: Final = 30.0
"""Seconds within which a docker must print its help."""


@dataclass(frozen=True)
class Docker:
    """A docker with BuildKit, and the environment in which it runs."""

    program: str
    environment: Mapping[str, str] = field(repr=False)
    options: tuple[str, ...] = ()
    """Options that its `build` needs."""

    def run(
        self,
        *arguments: str,
        line: Callable[[str], None],
        write: Callable[[BinaryIO], None] | None = None,
    ) -> int:
        """Run docker with *arguments*, call *line* with each line of its output, and return its exit code.

        *write* writes its standard input to a temporary file first. If this thread is interrupted, or its work is
        stopped, docker is terminated, so that the engine cancels the build.

        Raises:
            Exception: *write* raised it.
        """
        with tempfile.TemporaryFile() as given:
            if write is not None:
                write(given)
                given.seek(0)
            process = subprocess.Popen(
                [self.program, *arguments],
                env=dict(self.environment),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal is for this process, which then ends docker.
                start_new_session=True,
            )
        assert process.stdout is not None
        with process.stdout as stdout:
            try:
                for read in _lines(stdout.fileno()):
                    line(read)
                return process.wait()
            finally:
                if process.poll() is None:
                    # docker 20.10 does not always end after a signal. The engine cancels the build as soon as its
                    # client is gone, however that ended.
                    try:
                        signal_group(process.pid, signal.SIGTERM)
                        with suppress(subprocess.TimeoutExpired):
                            process.wait(_GRACE)
                    finally:  # Also if this wait is interrupted.
                        if process.poll() is None:
                            signal_group(process.pid)
                            process.wait()


def _lines(output: int) -> Iterator[str]:
    """Iterate over the lines of *output*, and check meanwhile whether the wait should be stopped."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            check_wanted()
            if not selector.select(_POLL):
                continue
            read = os.read(output, 1 << 16)
            *whole, rest = (rest + read).split(b"\n")
            yield from (each.decode(errors="replace").rstrip() for each in whole)
            if not read:
                if rest:
                    yield rest.decode(errors="replace").rstrip()
                return


def find_docker(environ: Mapping[str, str] | None = None) -> Docker:
    """Find the first docker on PATH whose `build` supports BuildKit's secrets.

    *environ* is the environment in which it runs, so `DOCKER_HOST`, `DOCKER_CONTEXT` and docker's own
    configuration have their usual effect; None: that of this process.

    Raises:
        DockerNotFoundError: There is none, or none of those found supports it.
    """
    environment = {
        **inherited(environ),
        "DOCKER_BUILDKIT": "1",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
    }
    folders = environment.get("PATH", "").split(os.pathsep)
    programs = [
        *filter(None, (shutil.which("docker", path=folder) for folder in folders if folder))
    ]
    for program in programs:
        with suppress(OSError, subprocess.SubprocessError):
            command = [program, "build", "--help"]
            done = subprocess.run(
                command, env=environment, capture_output=True, check=True, timeout=_ANSWER
            )
            words = done.stdout.split()
            if b"--secret" in words:
                # Otherwise a builder of buildx with the driver docker-container keeps the image to itself.
                return Docker(program, environment, ("--load",) if b"--load" in words else ())
    if programs:
        raise DockerNotFoundError(
            f"{' and '.join(programs)} cannot build with secrets: BuildKit is missing.",
            hint="Install the plugin buildx (Debian: docker-buildx or docker.io 20.10), or use another "
            "builder: KINETIC_IMAGE_BUILDER=layers.",
        )
    raise DockerNotFoundError(
        "There is no docker on PATH.",
        hint="Install Docker, or use another builder: KINETIC_IMAGE_BUILDER=layers.",
    )


def check_engine(docker: Docker) -> None:
    """Refuse an engine that does not respond.

    Raises:
        DockerUnavailableError: The message says why.
    """
    try:
        done = subprocess.run(
            [docker.program, "version"],
            env=dict(docker.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_ANSWER,
        )
    except subprocess.TimeoutExpired:
        raise DockerUnavailableError(
            f"The docker engine has not responded within {_ANSWER:.0f} s.",
            hint="Restart it, or check DOCKER_HOST and `docker context ls`.",
        ) from None
    if done.returncode != 0:
        lines = done.stdout.decode(errors="replace").splitlines()[-3:]
        raise DockerUnavailableError(
            f"The docker engine cannot be used: {' '.join(' '.join(lines).split())[:500]}",
            hint="Start it (sudo systemctl start docker, or Docker Desktop), or check DOCKER_HOST and `docker context ls`. "
            "If permission is denied, add the user to the group docker, and log in again: sudo usermod -aG docker $USER",
        )
