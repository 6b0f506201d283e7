"""Local jobs with the real runner: whatever is killed, the status is true and nothing lives on."""

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from kinetic.backends.local.backend import LocalBackend
from kinetic.backends.local.launch import ensure_bundle, spec_of
from kinetic.backends.local.liveness import Pipes
from kinetic.backends.local.paths import Home
from kinetic.job_status import JobStatus
from kinetic.testing import (
    a_launch,
    await_outcome,
    eventually,
    fake_runner_source,
    kill_hard,
    outcome_of,
)
from kinetic.testing.fakes import a_record
from kinetic_payload.layout import JobObjects
from kinetic_payload.processes import marked
from kinetic_payload.records.decode import decode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.folder.store import FolderStore

SCRIPT = """
import os, sys, time
import kinetic

@kinetic.run(accelerator="cpu", backend="local", retries=int(sys.argv[2]))
def life(text):
    print("up", flush=True)
    exec(text, {})
    return "done"

if __name__ == "__main__":
    print(life.run_async(sys.argv[1]).job_id)
"""


def test_what_lies_beside_the_folders_of_jobs_breaks_no_list_of_them(tmp_path: Path) -> None:
    jobs = Path(Home(str(tmp_path)).jobs)
    jobs.mkdir()
    (jobs / "notes.txt").touch()

    assert list(LocalBackend(tmp_path, FolderStore(tmp_path / "store")).list()) == []


def test_whoever_waits_for_a_job_that_is_about_to_start_hears_that_it_never_will(
    tmp_path: Path,
) -> None:
    submitter, other = (LocalBackend(tmp_path, FolderStore(tmp_path / "store")) for _ in range(2))
    with ExitStack() as submitting:
        record = submitting.enter_context(submitter.announced(a_record()))
        with other.watch([record]) as watch:
            for _ in range(3):
                watch.wait(0.05)
            submitting.close()
            waiting = threading.Thread(target=watch.wait, args=[None], daemon=True)
            waiting.start()
            waiting.join(60)
            assert not waiting.is_alive()


def test_to_watch_many_jobs_takes_no_files(tmp_path: Path) -> None:
    backend, this = LocalBackend(tmp_path, FolderStore(tmp_path / "store")), psutil.Process()
    gc.collect()  # What earlier tests have left may be closed at any time.
    before = this.num_fds()
    with ExitStack() as stack:
        for number in range(100):
            stack.enter_context(backend.watch([a_record(job_id=f"job-{number}")]))
        assert this.num_fds() <= before


class Life:
    """One submitted job, seen from a process that did not submit it."""

    def __init__(self, home: Path, project: Path, code: str, retries: int) -> None:
        project.mkdir()
        (project / "pyproject.toml").write_text("")
        (project / "job.py").write_text(SCRIPT)
        submitted = subprocess.run(
            [sys.executable, "job.py", textwrap.dedent(code), str(retries)],
            cwd=project,
            stdout=subprocess.PIPE,
            check=True,
        )
        self.job_id = submitted.stdout.decode().split()[-1]
        self.store = FolderStore(home / "store")
        self.backend = LocalBackend(home, self.store)
        name = JobObjects(self.job_id).handle
        self.record = decode(JobRecord, self.store.read(name), name=name)
        self.folder = home / "jobs" / self.job_id

    def until_up(self, said: str = "up") -> int:
        """Wait for what the function says, and return the pid of the runner."""
        lines = self.backend.log_lines(self.record, follow=True)
        assert any(line.text == said for line in lines)
        path = self.folder / "state.json"
        eventually(path.exists)  # Written once the runners are on their way.
        state = json.loads(path.read_text())
        pid: int = state["attempts"][-1]["pids"][0]
        return pid

    def outcome(self) -> Outcome:
        return await_outcome(self.backend, self.store, self.record)

    def processes(self) -> list[int]:
        return marked(f"KINETIC_JOB_ID={self.job_id}")


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))
    lives = []

    def start(code: str, retries: int = 0) -> Life:
        lives.append(Life(tmp_path / "home", tmp_path / f"p{len(lives)}", code, retries))
        return lives[-1]

    yield start
    for life in lives:
        for pid in life.processes():
            kill_hard(pid)


def test_when_the_supervisor_is_killed_the_function_dies_and_the_job_failed(live) -> None:  # type: ignore[no-untyped-def]
    life = live("import time; time.sleep(600)")
    runner = life.until_up()
    assert len(life.processes()) == 2
    psutil.Process(runner).parent().kill()  # type: ignore[union-attr]
    assert life.outcome().status == "failed"
    eventually(lambda: not life.processes())
    assert life.backend.observe(life.record).status is JobStatus.FAILED


def test_when_the_runner_is_killed_the_function_dies_and_a_retry_succeeds(live) -> None:  # type: ignore[no-untyped-def]
    life = live(
        "import os, time; time.sleep(600 if os.environ['KINETIC_ATTEMPT'] == '1' else 0)", 1
    )
    runner = life.until_up()
    kill_hard(runner)
    outcome = life.outcome()
    assert (outcome.status, outcome.attempt) == ("succeeded", 2)
    eventually(lambda: not life.processes())


def test_when_the_function_is_killed_its_runner_says_so(live) -> None:  # type: ignore[no-untyped-def]
    life = live("import time; time.sleep(600)")
    runner = life.until_up()
    [child] = psutil.Process(runner).children()
    child.send_signal(signal.SIGKILL)
    outcome = life.outcome()
    assert (outcome.status, outcome.written_by) == ("failed", "supervisor")
    assert "SIGKILL" in outcome.message


def test_a_stopped_job_had_its_grace(live) -> None:  # type: ignore[no-untyped-def]
    code = """
    import time
    try:
        print("at work", flush=True)
        time.sleep(600)
    finally:
        print("saved", flush=True)
    """
    life = live(code)
    life.until_up("at work")
    life.backend.stop(life.record, timeout=100, poll_interval=0.05)
    assert life.outcome().status == "cancelled"
    lines = [line.text for line in life.backend.log_lines(life.record)]
    assert lines[:3] == ["up", "at work", "saved"]
    assert life.processes() == []


def test_a_job_runs_from_its_first_attempt_on_however_late_its_supervisor_says_so(
    tmp_path: Path,
) -> None:
    store = FolderStore(tmp_path / "store")
    record = a_launch(store, "pass").record
    backend, folder = LocalBackend(tmp_path, store), Home(str(tmp_path)).job(record.job_id)
    Path(folder.path).mkdir(parents=True)
    pipes = Pipes(folder)
    assert backend.observe(record).status is JobStatus.PENDING
    Path(folder.attempt(1)).mkdir()
    assert backend.observe(record).status is JobStatus.RUNNING
    pipes.close()
    seen = backend.observe(record)
    assert (seen.status, seen.vanished) == (JobStatus.FAILED, True)
    assert "supervisor died" in seen.reason


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_supervisor_that_can_write_neither_its_state_nor_why_goes_on(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    launch = a_launch(store, "pass")
    spec = spec_of(launch, store, home, ensure_bundle(home, fake_runner_source()), {})
    folder = home.job(launch.record.job_id)
    Path(f"{folder.state}.new").mkdir(parents=True)
    pipes = Pipes(folder)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [
                # Unbuffered: Python's own end would fail where stderr takes nothing.
                *[
                    sys.executable,
                    "-u",
                    "-c",
                    "from kinetic.backends.local.supervisor.main import main; main()",
                ],
                *map(str, pipes.for_supervisor),
            ],
            input=spec.encode(),
            stderr=full,
            pass_fds=pipes.for_supervisor,
            check=False,
        )
    pipes.close()
    assert done.returncode == 0
    outcome = outcome_of(store, launch.record.job_id)
    assert outcome is not None
    assert outcome.status == "succeeded"
