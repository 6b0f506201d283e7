"""Ctrl-C at any line of a submit: the job runs and its id is printed, or nothing of it is left."""

from __future__ import annotations

import re
import signal
import time

import psutil
import pytest

from kinetic.interrupts import Uninterrupted
from kinetic.waiting import sleep
from kinetic_payload.processes import marked


@pytest.mark.parametrize(
    ("how", "begin", "every"),
    # Packaging and upload are long and made in pieces; what starts the job is short and delicate.
    [
        ("run_async", "start_call", 97),
        ("run_async", "start_supervisor", 23),
        ("call", "start_supervisor", 37),
    ],
)
def test_ctrl_c_takes_a_job_back_or_names_the_one_that_goes_on(
    project, how: str, begin: str, every: int
) -> None:
    gate, last = project.root.parent / "gate", 1000  # There are fewer lines than that.
    project.copy("interrupted.py")
    done = project.run("interrupted.py", how, begin, str(gate), "1", str(last), str(every))
    assert done.returncode == 0, done.stderr
    named = set(re.findall(r"(?:goes on|keeps running): +(cpu-work-\S+)", done.stderr))

    assert {path.name for path in (project.home / "jobs").iterdir()} <= named
    stored = {path.name for path in (project.home / "store").iterdir()}
    assert {name for name in stored if name.startswith("cpu-work-")} <= named

    def running() -> set[str]:
        pids = marked(f"KINETIC_HOME={project.home}")
        return {psutil.Process(pid).environ()["KINETIC_JOB_ID"] for pid in pids}

    # While the last job starts, its processes may be between two lists of processes.
    until = time.monotonic() + 30
    while running() != named and time.monotonic() < until:
        sleep(0.1)
    assert running() == named

    assert named, "the last line of all comes after the start"
    assert "stays behind" not in done.stderr
    gate.touch()
    project.write(
        "collect.py",
        "import kinetic, sys; print([kinetic.attach(j).result() for j in sys.argv[1:]])",
    )
    assert project.run("collect.py", *named).stdout == f"{[1] * len(named)}\n"


def test_signals_in_the_block_are_deferred_to_its_end_and_ignored_ones_stay_ignored() -> None:
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


def test_each_of_several_deferred_signals_reaches_its_handler() -> None:
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)}

    def handle(number: int, frame: object) -> None:
        came.append(number)
        raise RuntimeError(number)

    try:
        for number in before:
            signal.signal(number, handle)
        with pytest.raises(RuntimeError):
            raise_deferred(list(before))
        assert came == list(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def raise_deferred(numbers: list[int]) -> None:
    with Uninterrupted():
        for number in numbers:
            signal.raise_signal(number)


def interrupted(came: list[str]) -> None:
    with Uninterrupted():
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
        came.append("the end")
