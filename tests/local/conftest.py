"""Projects of a user's, run as a user runs them: as scripts in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass
class Project:
    """A folder with a user's files, a Kinetic home beside it, and a way to run scripts there."""

    root: Path
    home: Path
    copy_project: Callable[[str, Path], None]

    def copy(self, name: str) -> None:
        """Put the fixture project *name* into the folder: a file or folder of `projects`, beside the test."""
        self.copy_project(name, self.root)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("KINETIC_")}  # noqa: TID251
        # Unbuffered, Python forgets the rest of what a pipe takes a part of when the process is stopped.
        kept.pop("PYTHONUNBUFFERED", None)
        return {**kept, "KINETIC_HOME": str(self.home), "KINETIC_BACKEND": "local"}

    def start(self, name: str, *args: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, name, *args],
            cwd=self.root,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, name: str, *args: str, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        script = name if cwd is None else str(self.root / name)
        return self.execute(sys.executable, script, *args, cwd=cwd, **environment)

    def execute(
        self,
        *command: str,
        cwd: Path | str | None = None,
        text: str = "",
        umask: int = -1,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, or in *cwd*, with *text* as its input."""
        return subprocess.run(
            command,
            cwd=cwd or self.root,
            env={**self.environment, **environment},
            input=text,
            umask=umask,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=False,
        )

    def cli(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        return self.execute(sys.executable, "-m", "kinetic_cli", *args)

    def script(self, text: str, *args: str, **environment: str) -> str:
        """Write `main.py`, run it, and return what it printed; it must succeed."""
        self.write("main.py", text)
        return self.output("main.py", *args, **environment)

    def json(self, name: str, *args: str, **environment: str) -> Any:
        """Run a script, which must succeed, and return what its last line means as JSON."""
        return json.loads(self.output(name, *args, **environment).splitlines()[-1])

    def output(self, name: str, *args: str, **environment: str) -> str:
        """Run a script, which must succeed, and return what it printed."""
        done = self.run(name, *args, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server with the bucket `jobs`, which this process and those that it starts use."""
    # Not where `test_life.py` runs alone, with the packages only.
    from kinetic_servers.gcs import GcsServer

    with GcsServer() as server:
        server.create_bucket("jobs")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def unprivileged(*command: str) -> list[str]:
    """Return *command* such that it is denied what its user may not do, also if that is root."""
    if os.getuid() != 0:
        return list(command)
    less = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    if not shutil.which("setpriv") or subprocess.run([*less, "true"], check=False).returncode:
        pytest.skip("root, and no setpriv to be less")
    return [*less, *command]


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], *needs: str) -> None:
    """Write a wheel of pure Python with *files* that requires *needs*."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    whole = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": tags, f"{info}/RECORD": ""}
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in whole.items():
            wheel.writestr(path, text)


def project_in(
    folder: Path,
    warm: Callable[[Path], Path],
    end_processes_below: Callable[[Path], object],
    copy_project: Callable[[str, Path], None],
) -> Iterator[Project]:
    root = folder / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\nname = 'users-project'\nversion = '1'\n")
    yield Project(root, warm(folder / "home"), copy_project)
    end_processes_below(folder)


@pytest.fixture
def project(
    tmp_path: Path,
    warm: Callable[[Path], Path],
    end_processes_below: Callable[[Path], object],
    copy_project: Callable[[str, Path], None],
) -> Iterator[Project]:
    yield from project_in(tmp_path, warm, end_processes_below, copy_project)


@pytest.fixture(scope="module")
def shared_project(
    tmp_path_factory: pytest.TempPathFactory,
    warm: Callable[[Path], Path],
    end_processes_below: Callable[[Path], object],
    copy_project: Callable[[str, Path], None],
) -> Iterator[Project]:
    """A project whose jobs several tests of a module look at."""
    yield from project_in(
        tmp_path_factory.mktemp("shared"), warm, end_processes_below, copy_project
    )
