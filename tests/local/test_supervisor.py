"""Local jobs as real processes over a fake runner: deaths, races, retries and limits."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from kinetic.backends.local.launch import ensure_bundle, spec_of
from kinetic.backends.local.supervisor.attempt import Attempt
from kinetic.backends.local.supervisor.descendants import Descendants
from kinetic.backends.local.supervisor.main import _Job
from kinetic.backends.local.supervisor.power import CAFFEINATE, awake_command
from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic.errors import JobError, SubmitError
from kinetic.home.paths import Home, JobFolder
from kinetic.job_status import JobStatus
from kinetic.testing import eventually
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_servers.launches import (
    a_launch,
    fake_runner_source,
    job_ids_of,
)

from .machine import SLEEP
from .machine import Machine as Shared


def wait_for(gate: Path) -> str:
    """Return code that waits until *gate* is there."""
    return f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"


class Machine(Shared):
    """A machine with a store in its home."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "home", FolderStore(folder / "home" / "store"))

    def prepared(self, code: str, **options: object) -> tuple[SupervisorSpec, JobFolder]:
        """Return the start-up spec of a supervisor of a job, and the folder of the job."""
        launch = a_launch(self.store, code, **options)  # type: ignore[arg-type]
        self.records.append(launch.record)
        home = Home(str(self.home))
        spec = spec_of(launch, self.store, home, ensure_bundle(home, fake_runner_source()), {})
        folder = home.job(launch.record.job_id)
        Path(folder.path).mkdir(parents=True)
        return spec, folder

    def texts(self, record: JobRecord) -> list[str]:
        return [line.text for line in self.backend.log_lines(record, follow=True)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def test_a_job_outlives_its_submitter_and_its_terminal(tmp_path: Path) -> None:
    import pty

    machine = Machine(tmp_path)
    record = a_launch(FolderStore(tmp_path / "x"), "").record
    gate = tmp_path / "gate"
    code = textwrap.dedent(
        f"""
        from pathlib import Path
        from kinetic.backends.local.backend import LocalBackend
        from kinetic_servers.launches import a_launch
        from kinetic_payload.stores.folder.store import FolderStore
        home = Path({str(machine.home)!r})
        store = FolderStore(home / "store")
        job_id = {record.job_id!r}
        body = {wait_for(gate) + "print('done')"!r}
        LocalBackend(home, store).start(a_launch(store, body, job_id=job_id))
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    os.waitpid(pid, 0)
    os.close(terminal)  # The session's terminal hangs up.
    gate.touch()
    assert machine.outcome(record).status == "succeeded"
    assert machine.texts(record) == ["done"]


STUBBORN = """\
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("saving", flush=True))
print("up", flush=True)
"""
"""A grace: the fake takes no time to report, so it is 0.3 s in all."""


NO_GRACE = -5.0
"""A grace that is over, with what a runner may take to report, when it begins."""
LOOKS_UP = "print('up', flush=True)\n"


@pytest.mark.parametrize(
    ("code", "gate_opens", "cancelled", "status"),
    [
        ("", True, False, 0),
        ("import subprocess; subprocess.Popen(['sleep', '600'])\n", False, False, signal.SIGKILL),
        ("", False, True, signal.SIGKILL),
    ],
    ids=["only reports", "function runs", "report is not needed"],
)
def test_after_its_grace_a_stopped_runner_is_killed_unless_it_only_reports(
    machine: Machine, tmp_path: Path, code: str, gate_opens: bool, cancelled: bool, status: int
) -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    body = f"{ignoring}{code}{LOOKS_UP}{wait_for(tmp_path / 'gate')}"
    spec, folder = machine.prepared(body, grace=NO_GRACE)
    attempt = Attempt(spec, folder, 1)
    eventually(lambda: Path(folder.log(1, 0)).read_text() == "up\n")
    attempt.stop()
    attempt.advance()
    if gate_opens:
        assert attempt.timeout is not None
        (tmp_path / "gate").touch()
    if cancelled:
        attempt.stop(reports=False)
    eventually(lambda: attempt.advance() or not attempt.running)
    attempt.close()
    assert attempt.runners[0].status == status


def test_a_stranger_with_the_pid_of_an_ended_host_is_left_alone(machine: Machine) -> None:
    spec, folder = machine.prepared("pass")
    attempt = Attempt(spec, folder, 1)
    eventually(lambda: attempt.advance() or not attempt.running)
    stranger = with_pid(attempt.runners[0].pid)
    try:
        attempt.close()
        stranger.terminate()  # Of this it dies, if of nothing before.
        assert stranger.wait() == -signal.SIGTERM
    finally:
        stranger.kill()
        stranger.wait()


def with_pid(wanted: int) -> "subprocess.Popen[bytes]":
    """Return a process with that pid, in a group of its own; a skip where pids are not for us to choose."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(300):
        try:
            last.write_text(str(wanted - 1))
        except OSError as error:
            pytest.skip(f"pids cannot be chosen here: {error}")
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        if process.pid == wanted:
            return process
        process.kill()
        process.wait()
    pytest.skip("this machine starts too many processes to choose a pid")


def test_a_stop_that_takes_too_long_is_an_error_and_the_job_stays_supervised(
    machine: Machine, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    record = machine.start(STUBBORN + wait_for(gate), grace=600)
    machine.until_up(record)
    with pytest.raises(JobError, match="still runs"):
        machine.backend.stop(record, timeout=0.1, poll_interval=0.05)
    assert machine.backend.observe(record).status is JobStatus.RUNNING
    gate.touch()
    machine.backend.stop(record, timeout=60, poll_interval=0.05, remove=True)
    assert machine.backend.observe(record).status is JobStatus.NOT_FOUND


def test_a_stop_between_two_attempts_ends_the_next_one(machine: Machine) -> None:
    class Stopped:
        """A stop that arrived earlier; nothing follows, so a wait without a timeout would not end."""

        stop = "terminated"

        def wait(self, timeout: float | None, _readable: Sequence[int]) -> None:
            assert timeout is not None
            threading.Event().wait(0.01)

    spec, folder = machine.prepared(SLEEP, retries=3)
    job = _Job(spec, folder, Stopped(), adopting=False)  # type: ignore[arg-type]
    verdict = job.watch(Attempt(spec, folder, 2), 0.0)
    assert not verdict.retry
    assert "SIGTERM" in verdict.message


def test_a_process_with_its_own_session_and_environment_is_killed_without_adoption(
    machine: Machine, tmp_path: Path
) -> None:
    note, gate = tmp_path / "pid", tmp_path / "gate"
    leave = "import os, subprocess; p = subprocess.Popen(['env', '-i', 'sleep', '600'], start_new_session=True)"
    spec, folder = machine.prepared(
        f"{leave}\nopen({str(note)!r}, 'w').write(f'{{p.pid}}.')\n{wait_for(gate)}"
    )

    class UntilRecorded:
        stop = None

        def wait(self, _timeout: float | None, _readable: Sequence[int] = ()) -> None:
            threading.Event().wait(0.01)
            text = note.read_text() if note.exists() else ""
            if text.endswith(".") and int(text[:-1]) in (job.descendants or Descendants()).recorded:
                gate.touch()

    job = _Job(spec, folder, UntilRecorded(), adopting=False)  # type: ignore[arg-type]
    attempt = Attempt(spec, folder, 1)
    assert job.watch(attempt, 0.0).succeeded
    assert job._load_at is not None, "it was recorded before the deferred imports"
    left = psutil.Process(int(note.read_text()[:-1]))
    assert not left.environ()

    job.kill_remains(attempt)
    eventually(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE)


def test_when_a_job_is_reported_as_ended_no_process_of_it_is_left(machine: Machine) -> None:
    code = """
    import os, time
    if not os.fork():
        os.setsid()
        for _ in range(20):  # Each hands on the next one when it is killed.
            if os.fork():
                time.sleep(600)
        time.sleep(600)
    """
    record = machine.start(code)
    eventually(lambda: machine.state(record).get("status") == "succeeded")
    assert not machine.processes(record)


def test_secrets_are_neither_on_the_disk_nor_in_the_supervisor(machine: Machine) -> None:
    record = machine.start(SLEEP, environment={"TOKEN": "s3cr3t-value"})
    machine.until_up(record)
    for path in [machine.home / "jobs", machine.folder(record), *machine.folder(record).rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, path
        if path.is_file():
            assert b"s3cr3t-value" not in path.read_bytes()
    supervisor = machine.supervisor(record)
    assert not any("s3cr3t-value" in part for part in supervisor.cmdline())
    if os.path.exists("/proc/self"):
        assert "TOKEN" not in supervisor.environ()
    machine.backend.stop(record, timeout=60, poll_interval=0.05, remove=True)


def test_a_job_over_its_memory_limit_fails_with_the_limit(machine: Machine) -> None:
    code = """
    import subprocess, sys
    body = "import time; x = bytearray(300 << 20); time.sleep(600)"
    sys.exit(subprocess.run([sys.executable, "-c", body]).returncode)
    """
    record = machine.start(code, memory=128 << 20)
    outcome = machine.outcome(record)
    assert outcome.status == "failed"
    assert "more memory than its limit of 128 MiB" in outcome.message


def test_a_missing_interpreter_is_refused(machine: Machine) -> None:
    broken = a_launch(machine.store, "pass", interpreter=str(machine.home / "no" / "python"))
    with pytest.raises(SubmitError, match="no/python"):
        machine.backend.start(broken)
    assert job_ids_of(machine.backend) == []


def test_a_fork_of_the_submitter_does_not_keep_a_dead_job_alive(machine: Machine) -> None:
    """A pool's worker, forked while the FIFO is open here, inherits its write end."""
    from kinetic.home.liveness import is_alive, wait_for_death

    record = machine.start(SLEEP)
    machine.until_up(record)
    folder = JobFolder(str(machine.folder(record)))
    os.open(folder.alive, os.O_RDONLY | os.O_NONBLOCK)
    copy = os.open(folder.alive, os.O_WRONLY | os.O_NONBLOCK)
    try:
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(wait_for_death, folder, 120)
            machine.supervisor(record).kill()
            assert waiting.result(timeout=60)
        assert not is_alive(folder)
    finally:
        os.close(copy)
    assert machine.outcome(record).status == "failed"


def test_the_machine_is_kept_awake_for_as_long_as_the_supervisor_lives(
    machine: Machine, tmp_path: Path
) -> None:
    caffeinate = tmp_path / "caffeinate"
    caffeinate.write_text('#!/bin/sh\necho "$@" >"$0.asked"\nexec sleep 600\n')
    caffeinate.chmod(0o700)
    record = machine.start(SLEEP, keep_awake=(str(caffeinate), "-i", "-w"))
    machine.until_up(record)
    asked = tmp_path / "caffeinate.asked"

    eventually(lambda: asked.exists() and asked.read_text().endswith("\n"))
    supervisor = machine.supervisor(record)
    assert asked.read_text() == f"-i -w {supervisor.pid}\n"
    machine.backend.stop(record, timeout=60, poll_interval=0.05)
    assert machine.outcome(record).status == "cancelled"


@pytest.mark.parametrize(
    ("platform", "allow_sleep", "expected"),
    [("darwin", False, CAFFEINATE), ("darwin", True, ()), ("linux", False, ())],
)
def test_only_a_mac_has_to_be_kept_awake(
    platform: str, allow_sleep: bool, expected: tuple[str, ...]
) -> None:
    assert awake_command(allow_sleep=allow_sleep, platform=platform) == expected


IGNORED = (signal.SIGCHLD, signal.SIGINT, signal.SIGUSR1, signal.SIGALRM)


@pytest.fixture
def ignoring() -> Iterator[None]:
    """A submitter that ignores signals, which what it starts inherits."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("ignoring")
def test_signals_that_the_submitter_ignores_are_not_ignored_in_the_job(machine: Machine) -> None:
    code = "import signal\nfor number in {}: print(signal.getsignal(number) is signal.SIG_IGN)"
    record = machine.start(code.format([int(number) for number in IGNORED]))
    machine.outcome(record)
    assert machine.texts(record) == ["False"] * len(IGNORED)
