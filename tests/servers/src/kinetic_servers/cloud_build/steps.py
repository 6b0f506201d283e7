"""How the steps of a build run, and how its images are pushed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

_PUSHED: Final = re.compile(r"digest: (sha256:[0-9a-f]{64})")
_POLL: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a build."""

    image: str
    arguments: tuple[str, ...]
    entrypoint: str
    """Empty: that of the image."""
    environment: Mapping[str, str] = field(repr=False)
    """Its variables, those with secrets included."""
    folder: Path
    """The build's workspace; the source is unpacked there."""
    volumes: Mapping[str, Path] = field(default_factory=dict)
    """Paths in the step's container → folders that the steps of the build share."""
    write: Callable[[str], None]
    """Write text to the build's log."""
    stopped: threading.Event
    """Set when the build is cancelled or its time is over; the step has to end then."""


@dataclass(frozen=True)
class Pushed:
    """An image was pushed."""

    digest: str


@dataclass(frozen=True)
class Refused:
    """An image was not pushed."""

    kind: str
    """The name of a `Build.FailureInfo.FailureType`, such as `PUSH_NOT_AUTHORIZED`."""
    detail: str


class PythonSteps:
    """Calls Python functions instead of running containers: `image of the step → function(step) → exit code`.

    It pretends to push images: the digest of each is that of its name.
    """

    def __init__(self, programs: Mapping[str, Callable[[Step], int]]) -> None:
        self.pushed: dict[str, str] = {}
        """The images that were pushed → their digests."""
        self._programs = programs

    def run(self, step: Step) -> int:
        """Call the function of the step's image."""
        program = self._programs.get(step.image)
        if program is None:
            step.write(f"Error response from daemon: pull access denied for {step.image}\n")
            return 1
        return program(step)

    def push(self, image: str) -> Pushed:
        """Note that *image* was pushed."""
        self.pushed[image] = f"sha256:{sha256(image.encode()).hexdigest()}"
        return Pushed(self.pushed[image])


class DockerSteps:
    """Runs steps of the image with docker in it: with the docker of this machine, or its shell.

    That image is not available everywhere, and would only use the same engine through its socket. The paths of
    volumes in arguments are replaced by those of their folders.
    """

    def __init__(self, program: str, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._program = shutil.which(program, path=self._environ.get("PATH")) or program

    def run(self, step: Step) -> int:
        """Run *step*; kill it when it has to stop."""
        assert step.image == "gcr.io/cloud-builders/docker", f"no step of {step.image}"
        folder = step.folder.parent / "bin"
        folder.mkdir(exist_ok=True)
        link = folder / "docker"
        if not link.exists():
            link.symlink_to(self._program)
        temporary = step.folder.parent / "tmp"
        temporary.mkdir(exist_ok=True)
        path = f"{folder}:{self._environ.get('PATH', '')}"
        environ = {**self._environ, **step.environment, "PATH": path, "TMPDIR": str(temporary)}
        arguments = step.arguments
        for mounted, here in step.volumes.items():
            arguments = tuple(each.replace(mounted, str(here)) for each in arguments)
        return _run([step.entrypoint or str(link), *arguments], environ, step)

    def push(self, image: str) -> Pushed | Refused:
        """Push *image* with docker."""
        done = subprocess.run(
            [self._program, "push", image],
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
        )
        found = _PUSHED.search(done.stdout)
        if done.returncode == 0 and found:
            return Pushed(found[1])
        output = (done.stdout + done.stderr).strip()
        last = output.splitlines()[-1] if output else f"exit code {done.returncode}"
        denied = any(word in last for word in ("denied", "unauthorized", "no basic auth"))
        return Refused("PUSH_NOT_AUTHORIZED" if denied else "PUSH_FAILED", last)


Steps = PythonSteps | DockerSteps


def _run(command: list[str], environ: Mapping[str, str], step: Step) -> int:
    """Run *command*, copy its output to the log, and end it when the step has to stop."""
    try:
        process = subprocess.Popen(
            command,
            cwd=step.folder,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        step.write(f"{error}\n")
        return 127
    assert process.stdout is not None
    reader = threading.Thread(target=_copy, args=(process.stdout, step.write), daemon=True)
    reader.start()
    while process.poll() is None:
        if step.stopped.wait(_POLL):
            _kill(process)
    reader.join(5)
    return process.returncode


def _copy(stream: object, write: Callable[[str], None]) -> None:
    for line in stream:  # type: ignore[attr-defined]
        write(line.decode(errors="replace"))


def _kill(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return
