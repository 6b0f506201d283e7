"""How things are measured: in turns with their floor, in processes that inherit nothing of ours."""

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
    """What every benchmark is given."""

    folder: Path
    """Empty, and removed at the end."""
    quick: bool

    def rounds(self, normal: int, quick: int = 3) -> int:
        return quick if self.quick else normal

    @property
    def environment(self) -> dict[str, str]:
        """What children get: bytecode is cached, and no setting of the user's counts."""
        mine = os.environ.items()  # noqa: TID251 - no settings: the system's own variables
        kept = {name: value for name, value in mine if not name.startswith(("KINETIC_", "PYTHON"))}
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
        """Run the script *name* of `clients/`, in a project if one is given; return its findings.

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
    """Time each of *actions* in every round; a round before the first one warms caches up."""
    for action in actions:
        action()
    samples: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds):
        for action, found in zip(actions, samples, strict=True):
            found.append(seconds(action))
    return samples


def by_name(rounds: list[Mapping[str, float]]) -> dict[str, list[float]]:
    """Turn the findings of several rounds around: the samples of each name."""
    return {name: [found[name] for found in rounds] for name in rounds[0]}


@contextmanager
def scratch(*, in_memory: bool) -> Iterator[Path]:
    """Give a folder, in memory if asked for and the system can."""
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
    """Run the strict server of `kinetic_payload.testing` as a process; give its endpoint."""
    objects = bench.folder / "objects"
    # What it hashes is its own work and would be measured as ours.
    module = ["-m", "kinetic_payload.testing.gcs", "--no-md5"]
    command = [sys.executable, *module, "--folder", str(objects)]
    # So many that no round finds what another one uploaded.
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
