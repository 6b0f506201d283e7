from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from kinetic_payload.calls.call import CallHeader
from kinetic_payload.calls.unpickle import python_version
from kinetic_runner.bundle import bundle_for

PARENT = """
import sys
from kinetic_runner.parent.main import run_with
run_with([sys.executable, "-u", sys.argv[1]], sys.argv[3:], linger=float(sys.argv[2]) or None)
"""

# What `kinetic_runner.child.pipeline.run` does, as far as the parent can see it.
CHILD = """
import os, signal, subprocess, sys, threading, time
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_runner.child.main import run_child

def call(task, tell):
{body}

def pipeline(task, tell):
    tell({{"phase": {phase!r}}})
    code, reason = 0, "returned"
    try:
        call(task, tell)
    except Exception as error:
        print("failed:", error)
        code, reason = 1, "exception"
    return HostOutcome(job_id=task.record.job_id, attempt=task.attempt, host=task.host,
        succeeded=not code, reason=reason, phase={phase!r}, exit_code=code)

if __name__ == "__main__":  # Not in processes that `multiprocessing` starts.
    run_child(sys.argv, pipeline)
"""


RECORD = {"debug", "hosts", "payload_digest", "preemptions", "retries", "timeout", "workload"}


def store_record(store: Path, job: str, **fields: Any) -> str:
    """Write the record of a job into a folder, as far as a runner needs it; return its digest."""
    data = json.dumps({"job_id": job, "payload_digest": "0", **fields}).encode()
    if store.is_dir() or not store.exists():
        (store / job).mkdir(parents=True, exist_ok=True)
        (store / job / "handle.json").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def store_call(store: Path, header: CallHeader, function: Any, *args: Any, **fields: Any) -> str:
    """Write a job that calls *function*, and its record, into a folder; return the record's digest."""
    payload = header.encode() + b"\n" + cloudpickle.dumps((function, args, {}))
    fields["payload_digest"] = hashlib.sha256(payload).hexdigest()
    digest = store_record(store, "job", **fields)
    (store / "job" / "payload.pkl").write_bytes(payload)
    return digest


@dataclass(frozen=True)
class Finished:
    """What a runner left behind."""

    code: int
    output: bytes
    outcome: dict[str, Any] | None
    final: dict[str, Any] | None
    log: bytes


class Runner:
    """Starts real runners whose child runs a few given lines instead of the pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.workspace = folder / "workspace"
        self.output = folder / "output"
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "parent.py").write_text(PARENT)

    def start(
        self,
        body: str,
        *flags: str,
        phase: str = "call",
        job: str = "job",
        linger: float = 0,
        wrapper: Sequence[str] = (),
        stdout: Any = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a runner; *options* are fields of the record, and options of `Popen`."""
        record = {name: options.pop(name) for name in RECORD & options.keys()}
        digest = store_record(self.store, job, **record)
        child = self.folder / f"child-{len(self.started)}.py"
        lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        child.write_text(CHILD.format(body=lines, phase=phase))
        command = [*wrapper, sys.executable, "-u", str(self.folder / "parent.py")]
        command += [str(child), str(linger)]
        command += ["--store", str(self.store), "--job", job, "--record-digest", digest]
        command += ["--workspace", str(self.workspace), *flags]
        with self.output.open("wb") as output:
            process = subprocess.Popen(command, stdout=stdout or output, **options)
        self.started.append(process)
        return process

    def run(self, body: str, *flags: str, **options: Any) -> Finished:
        return self.finish(self.start(body, *flags, **options))

    def finish(
        self, process: subprocess.Popen[bytes], host: int = 0, attempt: int = 1, job: str = "job"
    ) -> Finished:
        code = process.wait(300)
        logs = sorted((self.store / "logs" / job / str(attempt) / f"host-{host}").glob("*"))
        return Finished(
            code,
            self.output.read_bytes(),
            self.read(f"{job}/attempts/{attempt}/host-{host}.json"),
            self.read(f"{job}/outcome.json"),
            b"".join(path.read_bytes() for path in logs),
        )

    def read(self, name: str) -> dict[str, Any] | None:
        path = self.store / name
        return json.loads(path.read_bytes()) if path.exists() else None

    def wait_for(self, path: Path) -> str:
        """Wait until a process of the test has written *path*; return what it holds."""
        eventually(lambda: path.exists() and path.read_text().endswith("."))
        return path.read_text()[:-1]


def eventually(true: Callable[[], object], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)  # noqa: TID251


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    if sys.platform == "linux":  # Small images have no `ps`.
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


# Slices are constants from Python 3.14 on, and sets have another order with another hash seed.
CONSTANTS = (
    b"A = {1, 'b', None}; B = A in {2.5, 'b'}; C = 'xyz'[1:2] + 'a constant'; D = 1 << 70, ()"
)


@pytest.fixture(scope="session")
def light() -> dict[str, bytes]:
    """The files that the client adds to `bundle`."""
    return {
        "light/kinetic/__init__.py": b"ORIGIN = 'light'\n",
        "light/kinetic/py.typed": b"",
        "light/constants.py": CONSTANTS,
    }


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, light: dict[str, bytes]) -> Path:
    """The runner's bundle with bytecode: building it takes seconds."""
    return bundle_for(tmp_path_factory.mktemp("cache"), light)


@pytest.fixture
def header_of() -> Callable[..., CallHeader]:
    """Return what makes the header of a call; it takes what differs."""

    def make(**changes: Any) -> CallHeader:
        header = {
            "python": python_version(),
            "cloudpickle": cloudpickle.__version__,
            "kinetic": "0.1.0",
            "function": "train",
            "module": "train",
            "context_digest": None,
            "paths": (),
            "cwd": "",
            "main": None,
            "main_kind": "interactive",
        }
        return CallHeader(**{**header, **changes})

    return make


@pytest.fixture
def runner(tmp_path: Path) -> Any:
    runner = Runner(tmp_path)
    yield runner
    for process in runner.started:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Give the tests' own process its signal handlers back: a call takes them over."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture
def stored_record() -> Callable[..., str]:
    return store_record


@pytest.fixture
def stored_call() -> Callable[..., str]:
    return store_call


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    return alive


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return eventually
