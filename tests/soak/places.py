"""Where a soak's jobs live: a project, a Kinetic home, a store, and what must not be left there."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from kinetic.home.collection import MAX_AGE, collect
from kinetic.home.paths import Home
from kinetic.testing import eventually
from kinetic_payload.layout import RESERVED_PREFIXES, Env, JobObjects
from kinetic_payload.processes import marked
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_servers.gcs import GcsServer
from kinetic_servers.launches import kill_hard

HOUR = 3600.0

SCRIPT = Path(__file__).parent / "projects" / "submit.py"


def is_right(value: Any, number: int, size: int) -> bool:
    """Return whether *value* is what the function of `SCRIPT` returns."""
    wanted = {"number": number, "bytes": random.Random(number).randbytes(size)}
    return bool(value == wanted)


def print_failure(problems: Sequence[str], what: str, command: str, number: int | None) -> None:
    """Print a failure as one line that ends with the command that repeats it."""
    rounds = "" if number is None else f" --first {number} --rounds 1"
    text = " ".join("; ".join(problems).split())
    print(f"FAILED {what}: {text} | python -m tests.soak {command}{rounds}", flush=True)


class Submitter:
    """A process that runs a script of `projects`, and its output so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.messages: list[dict[str, Any]] = []
        """The lines of JSON that it printed."""
        self.log: list[str] = []
        """The other lines."""
        self.errors = ""
        self._readers = [
            threading.Thread(target=self._read_lines),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.messages.append(json.loads(line))
            except ValueError:  # Or it was killed in the middle of a line.
                self.log.append(line.removesuffix("\n"))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def message(self, name: str) -> Any:
        """Return the value of *name* in its messages, or None."""
        return next((one[name] for one in self.messages if name in one), None)

    def end(self, seconds: float) -> bool:
        """Wait for its end, and kill it when the time is up; return whether it ended by itself."""
        try:
            self.process.wait(seconds)
            ended = True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            ended = False
        for reader in self._readers:
            reader.join()
        return ended


class Place:
    """A project, a home and a store: a folder, or a bucket of its own server at the address *host*."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        *,
        home: Path | None = None,
        script: Path = SCRIPT,
        host: str = "127.0.0.1",
    ) -> None:
        self.kind = kind
        self.script = script
        self.host = host
        self.folder = folder
        self.home = Home(str(home or folder / "home"))
        self.server: GcsServer | None = None
        self._closing = ExitStack()

    def __enter__(self) -> Place:
        root = self.folder / "project"
        root.mkdir(parents=True)
        Path(root, "pyproject.toml").write_text("[project]\nname = 'soak'\nversion = '1'\n")
        shutil.copyfile(self.script, root / "work.py")
        Path(self.folder, "data").mkdir()
        Path(self.folder, "data", "one.txt").write_text("1")
        self.environment = {"KINETIC_HOME": self.home.path}
        if self.kind == "bucket":
            self.server = self._closing.enter_context(GcsServer(host=self.host))
            self.server.create_bucket("jobs")
            self.environment |= {**self.server.environment, "KINETIC_STORE": "gs://jobs"}
        else:
            self.environment["KINETIC_STORE"] = str(self.folder / "store")
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def submit(
        self, plan: Mapping[str, Any], variables: Mapping[str, str] | None = None
    ) -> Submitter:
        """Start a submitter; *variables* are added to its environment."""
        names = ("KINETIC_", "STORAGE_EMULATOR_HOST")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(names)}  # noqa: TID251
        return Submitter(
            subprocess.Popen(
                [sys.executable, "work.py", json.dumps(plan)],
                cwd=self.folder / "project",
                env={**environ, **self.environment, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this process a client of the place."""
        os.environ.update(self.environment)  # noqa: TID251
        try:
            yield
        finally:
            for name in self.environment:
                del os.environ[name]  # noqa: TID251

    def store(self) -> Store:
        """Open the store; the place must be entered."""
        return open_store(parse_location(self.environment["KINETIC_STORE"]))

    def names(self) -> list[str]:
        """Return the names of all objects in the store, without a request to it."""
        if self.server is not None:
            return self.server.names("jobs")
        root = self.folder / "store"
        return [
            f"{Path(top, name).relative_to(root)}" for top, _, files in os.walk(root) for name in files
        ]  # fmt: skip

    def of_jobs(self) -> list[str]:
        """Return the names of all objects that are not shared by jobs."""
        shared = (*RESERVED_PREFIXES, ".kinetic-store/")
        return [name for name in self.names() if not name.startswith(shared)]

    def has(self, name: str) -> bool:
        """Return whether the object *name* is there."""
        if self.server is not None:
            return name in self.server.names("jobs", name)
        return Path(self.folder, "store", name).exists()

    def kept_folders(self) -> list[str]:
        """Return the names of the folders of jobs in the home."""
        with suppress(FileNotFoundError):
            return os.listdir(self.home.jobs)
        return []

    def job_ids(self) -> list[str]:
        """Return the ids of the jobs that have an object or a folder."""
        folders = [name for name in self.kept_folders() if not name.startswith(".")]
        return sorted({*(name.partition("/")[0] for name in self.of_jobs()), *folders})

    def left(self) -> list[str]:
        """Collect as a day later, and return what is still there of jobs without a record.

        Of a job that was being cleaned up the folder may stay for two weeks.
        """
        store = self.store()
        self._collect(store, 25 * HOUR)
        objects = self.of_jobs()
        staging = [name for name in self.kept_folders() if name.startswith(".")]
        left = [name for name in objects if not self.has(JobObjects(name.partition("/")[0]).handle)]
        if not objects and self.kept_folders():
            self._collect(store, MAX_AGE + 25 * HOUR)
            staging += self.kept_folders()
        return [*left, *(f"{self.home.jobs}/{name}" for name in staging)]

    def _collect(self, store: Store, seconds: float) -> None:
        later = time.time() + seconds
        collect(self.home, store, later, store_now=later)


def processes_of(job_id: str) -> list[int]:
    """Return the processes of a job: those that carry its id, and its supervisor."""
    found = set(marked(f"{Env.JOB_ID}={job_id}"))
    for process in psutil.process_iter(["cmdline"]):
        if job_id in (process.info["cmdline"] or ()):
            found.add(process.pid)
    return sorted(found)


def supervisor_of(job_id: str) -> psutil.Process | None:
    """Return the supervisor of a job, or None."""
    named = [p for p in psutil.process_iter(["cmdline"]) if job_id in (p.info["cmdline"] or ())]
    pids = {process.pid for process in named}
    with suppress(psutil.Error):
        return next((p for p in named if p.ppid() not in pids), None)
    return None


def ended_processes(job_id: str, seconds: float = 30.0) -> str:
    """Wait until no process of a job is left; kill those that are, and return the problem."""
    try:
        eventually(lambda: not processes_of(job_id), seconds)
    except AssertionError:
        left = processes_of(job_id)
        for pid in left:
            kill_hard(pid)
        return f"processes left: {left}"
    return ""
