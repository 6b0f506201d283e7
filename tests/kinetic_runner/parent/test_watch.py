"""What a child said counts from when it said it, not from when its parent came to hear it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_runner.parent.exit_code import ChildEnd
from kinetic_runner.parent.tee import Tee
from kinetic_runner.parent.watch import TimeLimits, Watch


class Beside:
    """A child, a self-pipe and a log uploader: nothing runs, and there are only their pipes."""

    full = False
    due_in = None

    def __init__(self) -> None:
        self.output, self._written = os.pipe()
        self.report, self._said = os.pipe()
        self.fd, self._wake = os.pipe()
        self._open = [self.output, self._written, self.report, self._said, self.fd, self._wake]
        for end in (self.output, self.report):
            os.set_blocking(end, False)
        self.status: int | None = None
        self.signals: list[int] = []
        self.requests = 0
        self.stop_requested = False
        self.stops_when_told = False
        self.says_when_told = b""
        self.generations = 0
        self.log = b""
        self._looks = 0

    def says(self, line: bytes) -> None:
        os.write(self._said, line + b"\n")

    def writes(self, data: bytes) -> None:
        os.write(self._written, data)

    # The child.

    def reap(self) -> bool:
        self._looks += 1
        if self._looks > 2 or self.signals:
            self.status = 0
        return self.status is not None

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if self.says_when_told:
            self.says(self.says_when_told)

    def request_stop(self) -> None:
        self.requests += 1

    def kill_all_but_trackers(self) -> bool:
        return True

    def kill_descendants(self) -> bool:
        self.generations -= 1
        return self.generations <= 0

    # The self-pipe.

    def read(self) -> None:
        return

    # The log.

    def append(self, data: bytes) -> None:
        self.log += data

    def send_due(self) -> None:
        """Let happen, while the parent is elsewhere, what the child has to say at the end."""
        if self._looks == 1:
            outcome = HostOutcome(
                job_id="j", attempt=1, host=0, succeeded=True, reason="returned", phase="report",
                exit_code=0,
            )  # fmt: skip
            self.says(b'{"outcome": ' + encode(outcome) + b"}")
            self.stop_requested = self.stops_when_told
            os.write(self._wake, b"!")

    def close(self) -> None:
        for end in self._open:
            os.close(end)


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.close()


def run(
    beside: Beside, limits: TimeLimits, lifeline: int | None = None, report_file: str = os.devnull
) -> ChildEnd:
    with open(os.devnull, "wb") as nowhere:
        tee = Tee(nowhere.fileno())
        watch = Watch(
            beside,  # type: ignore[arg-type]
            beside,  # type: ignore[arg-type]
            tee=tee,
            log=beside,  # type: ignore[arg-type]
            limits=limits,
            lifeline=lifeline,
            report_file=report_file,
        )
        return watch.run()


@pytest.mark.parametrize("told", [False, True])
def test_an_end_that_is_heard_late_is_neither_a_timeout_nor_cut_short(
    beside: Beside, told: bool
) -> None:
    beside.stops_when_told = told
    limits = TimeLimits(timeout=None if told else 0.0)
    for strange in (b'{"phase": []}', b'{"phase": "lunch"}', b"[1]", b"\xff", b'{"outcome": 7}'):
        beside.says(strange)  # User code wrote to the pipe.
    beside.says(b'{"phase": "call"}')
    end = run(beside, limits)

    assert (end.cause, end.reported_in_time, beside.signals) == (None, True, [])
    assert end.reported is not None
    assert end.reported.succeeded


@pytest.mark.parametrize(("phase", "in_time"), [("call", False), ("report", True)])
def test_what_is_reported_after_a_stop_counts_if_the_function_had_ended_before(
    beside: Beside, phase: str, in_time: bool
) -> None:
    beside.says(b'{"phase": "%s"}' % phase.encode())
    beside.stop_requested = True

    end = run(beside, TimeLimits())

    assert end.cause == "terminated"
    assert bool(beside.signals) != in_time
    assert (end.reported is not None, end.reported_in_time) == (True, in_time)


@pytest.mark.parametrize(
    ("said", "signals", "requests"),
    [("{}", [signal.SIGTERM], 0), ('{"sigterm": "native"}', [], 1)],
)
def test_a_child_that_sigterm_reaches_is_not_disturbed_by_a_second_signal(
    beside: Beside, tmp_path: Path, said: str, signals: list[int], requests: int
) -> None:
    report = tmp_path / "report"
    report.write_text(said + '\n{"phase": "call"}\n')

    run(beside, TimeLimits(timeout=0.0), report_file=str(report))

    assert (beside.signals, beside.requests) == (signals, requests)


def test_a_child_that_knows_that_its_function_had_ended_before_the_stop_is_believed(
    beside: Beside,
) -> None:
    beside.says(b'{"phase": "call"}')
    beside.stop_requested = True
    beside.says_when_told = b'{"undisturbed": true}'

    end = run(beside, TimeLimits())

    assert (end.cause, end.reported_in_time, len(beside.signals)) == ("terminated", True, 1)


def test_whether_a_preemption_came_before_the_end_is_not_for_python_to_say(beside: Beside) -> None:
    beside.says(b'{"sigterm": "native"}')
    beside.says(b'{"phase": "call"}')
    beside.stop_requested = True
    beside.says_when_told = b'{"undisturbed": true}'

    end = run(beside, TimeLimits())

    assert (end.cause, end.reported_in_time, len(beside.signals)) == ("terminated", False, 1)


@pytest.mark.parametrize(("phase", "in_time"), [("call", False), ("report", True)])
def test_a_value_that_is_reported_when_the_supervisor_dies_counts(
    beside: Beside, phase: str, in_time: bool
) -> None:
    beside.says(b'{"phase": "%s"}' % phase.encode())
    lifeline, end = os.pipe()
    os.close(end)

    end = run(beside, TimeLimits(), lifeline)

    os.close(lifeline)
    assert end.cause == (None if in_time else "orphaned")
    assert end.reported_in_time == in_time
    assert not in_time or end.reported is not None


def test_a_warning_that_is_heard_first_stands_behind_what_was_written_before_it(
    beside: Beside,
) -> None:
    beside.writes(b"half")
    beside.says(b'{"warning": "mind"}')
    beside.stop_requested = True  # What the child said is looked at before its output is.

    run(beside, TimeLimits())

    assert beside.log == b"half\n[kinetic] Warning: mind\n"


def test_what_the_killed_leave_behind_is_killed_too_however_long_that_takes(
    beside: Beside,
) -> None:
    beside.generations = 3

    run(beside, TimeLimits(remains=0.0))

    assert beside.generations == 0
