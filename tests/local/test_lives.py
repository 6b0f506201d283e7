"""Local jobs with the real runner: whatever is killed, the status is true and no process is left."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from kinetic.backends.backend import Ending
from kinetic.backends.local.backend import LocalBackend
from kinetic.home.liveness import Pipes
from kinetic.home.paths import Home
from kinetic.job_status import JobStatus
from kinetic.testing import eventually
from kinetic_payload.layout import JobObjects
from kinetic_payload.processes import marked
from kinetic_payload.records.decode import decode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.fakes import a_record
from kinetic_servers.launches import (
    a_launch,
    await_outcome,
    kill_hard,
)

SCRIPT = """
import os, time
import kinetic

@kinetic.run(accelerator="cpu", backend="local", retries=5)
def life():
    try:
        print("up", flush=True)
        time.sleep(600)
    finally:
        print("saved", flush=True)

if __name__ == "__main__":
    print(life.run_async().job_id)
"""


@pytest.fixture
def backend(tmp_path: Path) -> LocalBackend:
    return LocalBackend(tmp_path, FolderStore(tmp_path / "store"))


def test_a_wait_for_an_announced_job_ends_when_the_job_will_not_start(
    tmp_path: Path, backend: LocalBackend
) -> None:
    other = LocalBackend(tmp_path, FolderStore(tmp_path / "store"))
    with ExitStack() as submitting:
        record = submitting.enter_context(backend.announced(a_record()))
        with other.watch([record]) as watch:
            for _ in range(3):
                watch.wait(0.05)
            submitting.close()
            waiting = threading.Thread(target=watch.wait, args=[None], daemon=True)
            waiting.start()
            waiting.join(60)
            assert not waiting.is_alive()


def test_a_job_runs_from_its_first_attempt_on_until_its_supervisor_has_died(
    tmp_path: Path, backend: LocalBackend
) -> None:
    record = a_launch(FolderStore(tmp_path / "store"), "pass").record
    folder = Home(str(tmp_path)).job(record.job_id)
    Path(folder.path).mkdir(parents=True)
    pipes = Pipes(folder)
    assert backend.observe(record).status is JobStatus.PENDING
    Path(folder.attempt(1)).mkdir()
    assert backend.observe(record).status is JobStatus.RUNNING
    pipes.close()
    seen = backend.observe(record)
    assert (seen.status, seen.ending) == (JobStatus.FAILED, Ending.VANISHED)
    assert "supervisor died" in seen.reason


@pytest.fixture
def home(tmp_path: Path, warm: Callable[[Path], Path]) -> Iterator[Path]:
    home = warm(tmp_path / "home")
    yield home
    for folder in (home / "jobs").iterdir():
        for pid in marked(f"KINETIC_JOB_ID={folder.name}"):
            kill_hard(pid)


def test_kills_of_runner_and_function_are_reported_and_a_stop_leaves_time_to_save(
    tmp_path: Path, home: Path
) -> None:
    """One job: its runner is killed, in the next attempt its function, then it is stopped."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("")
    (project / "job.py").write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "KINETIC_HOME": str(home)}  # noqa: TID251
    submitted = subprocess.run(
        [sys.executable, "job.py"], cwd=project, env=environment, stdout=subprocess.PIPE, check=True
    )
    store = FolderStore(home / "store")
    names = JobObjects(submitted.stdout.decode().split()[-1])
    record = decode(JobRecord, store.read(names.handle), name=names.handle)
    backend, state = LocalBackend(home, store), home / "jobs" / record.job_id / "state.json"

    def runner_of(attempt: int) -> psutil.Process:
        """Wait until the function runs in *attempt*; return the runner."""
        log = Path(Home(str(home)).job(record.job_id).log(attempt, 0))
        eventually(lambda: log.exists() and "up\n" in log.read_text())
        # Written once the runners have been started.
        found = eventually(
            lambda: state.exists() and json.loads(state.read_text())["attempts"][attempt - 1 :]
        )
        return psutil.Process(found[0]["pids"][0])

    def ended(attempt: int) -> tuple[str, str]:
        report = json.loads(store.read(names.host_outcome(attempt, 0)))
        assert report["signal"] == 9
        return report["reason"], report["message"]

    runner = runner_of(1)
    [function] = runner.children()
    runner.kill()

    runner = runner_of(2)
    assert not function.is_running()
    assert ended(1) == ("killed", "The runner was killed by SIGKILL.")
    [function] = runner.children()
    function.kill()

    runner_of(3)
    reason, message = ended(2)
    assert (reason, message.partition(" in ")[0]) == ("killed", "The process was killed by SIGKILL")

    backend.stop(record, timeout=100, poll_interval=0.05)
    assert await_outcome(backend, store, record).status == "cancelled"
    assert [line.text for line in backend.log_lines(record)][:2] == ["up", "saved"]
    assert marked(f"KINETIC_JOB_ID={record.job_id}") == []
