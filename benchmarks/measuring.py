"""Measure actions: in turns with their floor, in processes that inherit no settings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLIENTS = Path(__file__).parent / "clients"
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Bench:
    """The folder and the size of a benchmark, and how it runs processes."""

    folder: Path
    """Empty, and removed at the end."""
    quick: bool

    def rounds(self, normal: int, quick: int = 3) -> int:
        return quick if self.quick else normal

    @property
    def environment(self) -> dict[str, str]:
        """The environment of child processes: bytecode is cached, and no setting of the user applies."""
        variables = os.environ.items()  # noqa: TID251 - no settings: the system's own variables
        kept = {
            name: value for name, value in variables if not name.startswith(("KINETIC_", "PYTHON"))
        }
        return {
            **kept,
            "KINETIC_HOME": str(self.folder / "home"),
            "KINETIC_BACKEND": "local",
            "KINETIC_CONTEXT_SIZE_WARN_MB": "1000000",
        }

    def python(
        self, *arguments: str, cwd: Path | None = None, variables: Mapping[str, str] = NOTHING
    ) -> subprocess.CompletedProcess[str]:
        """Run this Python with *arguments* to its end; *variables* are added to its environment."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done

    def client(
        self,
        name: str,
        *arguments: object,
        project: Path | None = None,
        variables: Mapping[str, str] = NOTHING,
    ) -> Any:
        """Run the script *name* of `clients/`, in *project* if it is given; return its findings.

        The client writes them as JSON into the file that is its first argument.
        """
        script = CLIENTS / f"{name}.py"
        if project is not None:
            copy = project / "main.py"
            if not copy.exists() or copy.read_bytes() != script.read_bytes():
                copy.write_bytes(script.read_bytes())
            script = copy
        found = self.folder / f"{name}.json"
        self.python(str(script), str(found), *map(str, arguments), cwd=project, variables=variables)
        return json.loads(found.read_text())


def seconds(action: Callable[[], object]) -> float:
    """Return how long *action* takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def in_turns(rounds: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Time each of *actions* in every round, after one round that fills caches."""
    for action in actions:
        action()
    samples: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, found in zip(actions, samples, strict=True):
            found.append(seconds(action))
    return samples


def by_name(rounds: list[Mapping[str, float]]) -> dict[str, list[float]]:
    """Transpose the findings of several rounds: return the samples of each name."""
    return {name: [found[name] for found in rounds] for name in rounds[0]}


@contextmanager
def scratch(*, in_memory: bool) -> Iterator[Path]:
    """Provide a temporary folder, with *in_memory* in memory if the system supports that."""
    memory = Path("/dev/shm")
    where = memory if in_memory and memory.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="kinetic-bench-", dir=where) as folder:
        yield Path(folder).resolve()


def write_project(folder: Path, files: int) -> Path:
    """Write a project of *files* small Python files, and return its root."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "bench"\nversion = "1"\n')
    for number in range(files - 2):  # The script and pyproject.toml are files, too.
        package = folder / f"part_{number // 50}"
        package.mkdir(exist_ok=True)
        text = "".join(f"VALUE_{line} = 'line {line} of {number}'\n" for line in range(60))
        (package / f"module_{number}.py").write_text(text)
    return folder


@contextmanager
def bucket_server(bench: Bench, *, delay: float = 0.0) -> Iterator[str]:
    """Run the strict server `kinetic_servers.gcs` as a process; provide its endpoint."""
    objects = bench.folder / "objects"
    # `--no-md5`: time in which the server hashes would count as Kinetic's.
    module = ["-m", "kinetic_servers.gcs", "--no-md5"]
    command = [sys.executable, *module, "--folder", str(objects)]
    # One bucket for each round, so that no round finds the uploads of another round.
    for number in range(100):
        command += ["--bucket", f"bench-{number}"]
    process = subprocess.Popen(
        [*command, "--delay", str(delay)],
        env=bench.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(objects, ignore_errors=True)
