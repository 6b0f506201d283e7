"""Ctrl-C at any line of a submit: the job runs and its id is told, or nothing of it is left."""

from __future__ import annotations

import re
import signal
import threading

import psutil
import pytest

from kinetic.backends.local.supervisor.runners import marked
from kinetic.interrupts import Uninterrupted

SCRIPT = """
import kinetic, os, psutil, signal, subprocess, sys, time
from pathlib import Path

@kinetic.run(accelerator="cpu")
def work(gate):
    print("up", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.02)
    return 1

OURS = ("submit.py", "blocking_call.py", "interrupts.py", "backend.py", "launch.py", "liveness.py", "handle.py")

JOBS = Path(os.environ["KINETIC_HOME"], "jobs")

class Interrupting:
    '''Sends SIGINT before line *at* of ours, counted from where the function *begin* is called.'''

    def __init__(self, begin, at):
        self.begin, self.at, self.count, self.waits = begin, at, None, False
        self.before = self.children()

    def children(self):
        return {child.pid for child in psutil.Process().children()}

    def runs(self):
        logs = [folder / "attempt-1" / "host-0.log" for folder in JOBS.glob("cpu-*")]
        return all(log.exists() and log.read_text() for log in logs)

    def __call__(self, frame, event, arg):
        code = frame.f_code
        ours = "kinetic" in code.co_filename and code.co_filename.endswith(OURS)
        if not (ours or code.co_filename == subprocess.__file__):
            return None
        if event == "call" and code.co_name == self.begin:
            self.count = 0
        if code.co_name == "_collect" and self.count is not None:
            self.waits = True  # For the job that was started.
            self.fire()
        if event == "line" and self.count is not None:
            self.count += 1
            if self.count == self.at:
                self.fire()
        return self

    def fire(self):
        sys.settrace(None)
        self.count = None
        while self.children() - self.before and not self.runs():
            time.sleep(0.01)  # Had it come later, would the job be at work.
        signal.raise_signal(signal.SIGINT)

if __name__ == "__main__":
    how, begin, gate = sys.argv[1:4]
    submit = work.run_async if how == "run_async" else work
    for at in range(*map(int, sys.argv[4:])):
        interrupting = Interrupting(begin, at)
        sys.settrace(interrupting)
        try:
            job = submit(gate)
        except KeyboardInterrupt as stop:
            print("\\n".join(getattr(stop, "__notes__", ())), file=sys.stderr)
            if interrupting.waits:
                break
        else:
            print("it goes on: ", job.job_id, file=sys.stderr)
            break  # There are no more lines.
        finally:
            sys.settrace(None)
"""


@pytest.mark.parametrize(
    ("how", "begin", "every"),
    # Packaging and upload are long and made in pieces; what starts the job is short and delicate.
    [("run_async", "_start", 67), ("run_async", "_spawn", 11), ("call", "_spawn", 17)],
)
def test_ctrl_c_takes_a_job_back_or_says_which_one_goes_on(
    project, how: str, begin: str, every: int
) -> None:
    gate, last = project.root.parent / "gate", 1000  # There are fewer lines than that.
    project.write("main.py", SCRIPT)
    done = project.run("main.py", how, begin, str(gate), "1", str(last), str(every))
    assert done.returncode == 0, done.stderr
    told = set(re.findall(r"goes on.*: +(cpu-work-\S+)", done.stderr))

    assert {path.name for path in (project.home / "jobs").iterdir()} <= told
    stored = {path.name for path in (project.home / "store").iterdir()}
    assert {name for name in stored if name.startswith("cpu-work-")} <= told
    running = marked(f"KINETIC_HOME={project.home}")
    assert {psutil.Process(pid).environ()["KINETIC_JOB_ID"] for pid in running} == told

    assert told, "the last line of all comes after the start"
    assert "stays behind" not in done.stderr
    gate.touch()
    project.write(
        "collect.py",
        "import kinetic, sys; print([kinetic.attach(j).result() for j in sys.argv[1:]])",
    )
    assert project.run("collect.py", *told).stdout == f"{[1] * len(told)}\n"


def test_signals_within_the_block_arrive_at_its_end_and_those_ignored_never() -> None:
    came: list[str] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted(came)
        assert came == ["the end"]
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before[signal.SIGALRM])


def interrupted(came: list[str]) -> None:
    with Uninterrupted():
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
        came.append("the end")


def test_in_another_thread_there_is_nothing_to_put_off() -> None:
    entered = threading.Event()

    def enter() -> None:
        with Uninterrupted():
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered.is_set()
