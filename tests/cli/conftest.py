"""A user's machine, on which the commands are processes."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from kinetic_servers.stub_jobs import check_json

PROJECTS = Path(__file__).parent / "projects"
KINETIC = (sys.executable, "-m", "kinetic_cli")


class Laptop:
    """A project and a home; each command is a process of its own."""

    def __init__(self, folder: Path, home: Path, environment: dict[str, str]) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        shutil.copyfile(PROJECTS / "jobs.py", self.project / "main.py")
        self.environment = {
            **environment,
            "KINETIC_HOME": str(home),
            "KINETIC_BACKEND": "local",
        }
        self.home = home
        self.submitted: list[str] = []

    def submit(self, *args: str) -> str:
        ran = self._run([sys.executable, "main.py", *args])
        assert ran.returncode == 0, ran.stderr
        self.submitted.append(ran.stdout.split()[-1])
        return self.submitted[-1]

    def kinetic(self, *args: str) -> subprocess.CompletedProcess[str]:
        ran = self._run([*KINETIC, *args])
        check_json(args, ran.stdout)
        return ran

    def start(self, *args: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*KINETIC, *args],
            cwd=self.project,
            env=self.environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def in_terminal(self, *args: str, columns: int = 80) -> str:
        """Return what a command prints on a terminal."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {name: value for name, value in self.environment.items() if name != "COLUMNS"}
        with os.fdopen(master, "rb", buffering=0) as terminal:
            process = subprocess.Popen(
                [*KINETIC, *args],
                cwd=self.project,
                env=kept,
                stdout=slave,
                stderr=subprocess.DEVNULL,
            )
            os.close(slave)
            printed = b""
            with suppress(OSError):  # The end of a terminal.
                while data := terminal.read(4096):
                    printed += data
        assert process.wait() == 0
        return printed.decode()

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def laptop(tmp_path: Path, warm: Callable[[Path], Path]) -> Iterator[Laptop]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251 - for children
    laptop = Laptop(tmp_path, warm(tmp_path / "home"), kept)
    yield laptop
    for job_id in laptop.submitted:
        laptop.kinetic("jobs", "cancel", job_id)
