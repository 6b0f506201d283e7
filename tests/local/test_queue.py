"""At most `KINETIC_LOCAL_JOBS` jobs run at once; the others wait, and no kill loses one of them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from kinetic.waiting import sleep
from kinetic_payload.layout import JobObjects

SCRIPT = """
    import os, sys, time
    from pathlib import Path
    import kinetic

    @kinetic.run(accelerator="cpu")
    def work(name):
        place = Path(os.environ["KINETIC_OUTPUT_DIR"], "..", "..", "seen").resolve()
        place.mkdir(exist_ok=True)
        (place / f"began {time.time():.3f} {name}").touch()
        while not (place / f"go {name}").exists():
            time.sleep(0.01)
        return name

    if __name__ == "__main__":
        for name in sys.argv[1:]:
            print(work.run_async(name).job_id)
"""
FORKS = """
    import os, sys, threading, time
    from pathlib import Path
    from main import work

    home = Path(os.environ["KINETIC_HOME"])

    def fork():
        while not [*home.glob("jobs/.*")]:  # The submit has begun.
            time.sleep(0.001)
        if os.fork() == 0:
            sys.stdout.close(), os.closerange(0, 3)
            until = time.monotonic() + 60
            while not (home / "store" / "seen" / "go a").exists() and time.monotonic() < until:
                time.sleep(0.01)
            os._exit(0)

    if __name__ == "__main__":
        threading.Thread(target=fork).start()
        print(work.run_async("b").job_id)
"""
NESTED = """
    import os, subprocess, sys
    import kinetic

    @kinetic.run(accelerator="cpu")
    def inner():
        return "inner"

    @kinetic.run(accelerator="cpu", capture_env_vars=["KINETIC_BACKEND", "KINETIC_LOCAL_JOBS"])
    def outer():
        command = [sys.executable, "nested.py", "inner"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    if __name__ == "__main__":
        print(inner() if sys.argv[1:] else outer())
"""


@pytest.fixture
def queue(project):
    return Queue(project)


class Queue:
    """A project whose jobs run until they are let go."""

    def __init__(self, project) -> None:
        self.project = project
        self.seen = project.home / "store" / "seen"

    def submit(self, *names: str) -> list[str]:
        return self.project.script(SCRIPT, *names, KINETIC_LOCAL_JOBS="1").split()

    def let_go(self, *names: str) -> None:
        self.seen.mkdir(parents=True, exist_ok=True)
        for name in names:
            (self.seen / f"go {name}").touch()

    def begun(self) -> list[str]:
        found = self.seen.glob("began*")
        return [path.name.split()[2] for path in sorted(found)]

    def await_begun(self, *names: str) -> None:
        until = time.monotonic() + 60
        while self.begun() != [*names]:
            assert time.monotonic() < until, self.begun()
            sleep(0.02)

    def status(self, job_id: str) -> str:
        return self.project.cli("jobs", "status", job_id).stdout

    def kill(self, *needles: str) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if all(needle in arguments for needle in needles):
                os.kill(int(path.parent.name), signal.SIGKILL)


def test_jobs_without_a_place_wait_in_order_and_say_for_what(queue):
    first, second, third = queue.submit("a", "b", "c")
    queue.await_begun("a")

    assert "PENDING" in queue.status(third)
    assert f"1 run ({first}), and 1 wait before it" in queue.status(third)
    assert "KINETIC_LOCAL_JOBS" in queue.status(second)
    queue.project.home.joinpath("store", JobObjects(second).pending).write_text('{"reasons": 1}')
    damaged = queue.project.cli("jobs", "report", second).stdout
    assert "Note: Why it waited is not known" in damaged

    queue.let_go("a", "b", "c")  # The submitter has ended long ago.
    queue.await_begun("a", "b", "c")
    assert queue.project.cli("jobs", "result", third).returncode == 0
    report = queue.project.cli("jobs", "report", third).stdout.splitlines()
    waited = next(n for n, line in enumerate(report) if "1  waiting" in line)
    assert f"1 run ({first}), and 1 wait before it" in report[waited + 1]


def test_a_waiting_job_is_cancelled_at_once_and_never_runs(queue):
    queue.project.write("forks.py", FORKS)
    queue.submit("a")
    second = queue.project.output("forks.py", KINETIC_LOCAL_JOBS="1").strip()
    queue.submit("c")

    began = time.monotonic()
    cancelled = queue.project.cli("jobs", "cancel", second)

    assert cancelled.returncode == 0, cancelled.stderr
    assert time.monotonic() - began < 20  # Although a fork of its submitter lives.
    queue.let_go("a", "c")
    queue.await_begun("a", "c")


@pytest.mark.parametrize("killed", ["starter", "supervisor", "all"])
def test_a_kill_loses_neither_a_place_nor_a_job_that_waits(queue, killed: str):
    first, _, third = queue.submit("a", "b", "c")
    queue.await_begun("a")

    if killed != "supervisor":
        queue.kill("kinetic.home.queue", str(queue.project.home))
    if killed != "starter":
        queue.kill("supervisor.main", first)
    else:
        queue.let_go("a")
    if killed == "all":
        assert "PENDING" in queue.status(third)  # As after a reboot: the first look goes on.

    queue.await_begun("a", "b")
    queue.let_go("b", "c")
    queue.await_begun("a", "b", "c")


def test_what_a_waiting_job_keeps_on_disk_is_private_and_goes_when_it_starts(queue):
    _, second = queue.submit("a", "b")
    waiting = queue.project.home / "jobs" / second / "waiting"

    assert waiting.stat().st_mode & 0o777 == 0o600

    queue.let_go("a", "b")
    queue.await_begun("a", "b")
    assert not waiting.exists()


def test_a_job_submitted_in_a_job_takes_no_place(queue):
    queue.project.write("nested.py", NESTED)

    assert queue.project.output("nested.py", KINETIC_LOCAL_JOBS="1").strip().endswith("inner")
