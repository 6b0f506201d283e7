"""A report of the child counts from when it was sent, not from when the parent reads it."""

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


class Pipes:
    """The pipes of a child, of a self-pipe and of a log uploader, without processes."""

    full = False
    due_in = None

    def __init__(self) -> None:
        self.output, self._written = os.pipe()
        self.errors, self._errors_end = os.pipe()
        self.report, self._report_end = os.pipe()
        self.fd, self._wake = os.pipe()
        self._open = [
            self.output,
            self._written,
            self.errors,
            self._errors_end,
            self.report,
            self._report_end,
            self.fd,
            self._wake,
        ]
        for end in (self.output, self.errors, self.report):
            os.set_blocking(end, False)
        self.status: int | None = None
        self.signals: list[int] = []
        self.requests = 0
        self.stop_requested = False
        self.stops_at_the_end = False
        self.reports_when_stopped = b""
        self.generations = 0
        self.log = b""
        self._looks = 0

    def reports(self, line: bytes) -> None:
        os.write(self._report_end, line + b"\n")

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
        if self.reports_when_stopped:
            self.reports(self.reports_when_stopped)

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
        """Send the outcome of the child while its parent is busy."""
        if self._looks == 1:
            outcome = HostOutcome(
                job_id="j", attempt=1, host=0, succeeded=True, reason="returned", phase="report",
                exit_code=0,
            )  # fmt: skip
            self.reports(b'{"outcome": ' + encode(outcome) + b"}")
            self.stop_requested = self.stops_at_the_end
            os.write(self._wake, b"!")

    def close(self) -> None:
        for end in self._open:
            os.close(end)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def run(
    pipes: Pipes, limits: TimeLimits, lifeline: int | None = None, report_file: str = os.devnull
) -> ChildEnd:
    with open(os.devnull, "wb") as nowhere:
        tee = Tee(nowhere.fileno())
        watch = Watch(
            pipes,  # type: ignore[arg-type]
            pipes,  # type: ignore[arg-type]
            tee=tee,
            log=pipes,  # type: ignore[arg-type]
            limits=limits,
            lifeline=lifeline,
            report_file=report_file,
        )
        return watch.run()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_report_that_is_read_late_is_neither_a_timeout_nor_a_stop(
    pipes: Pipes, stopped: bool
) -> None:
    pipes.stops_at_the_end = stopped
    limits = TimeLimits(timeout=None if stopped else 0.0)
    for strange in (b'{"phase": []}', b'{"phase": "lunch"}', b"[1]", b"\xff", b'{"outcome": 7}'):
        pipes.reports(strange)  # User code wrote to the pipe.
    pipes.reports(b'{"phase": "call"}')
    end = run(pipes, limits)

    assert (end.cause, end.reported_in_time, pipes.signals) == (None, True, [])
    assert end.reported is not None
    assert end.reported.succeeded


@pytest.mark.parametrize(("phase", "in_time"), [("call", False), ("report", True)])
def test_a_report_after_a_stop_counts_if_the_function_had_ended_before(
    pipes: Pipes, phase: str, in_time: bool
) -> None:
    pipes.reports(b'{"phase": "%s"}' % phase.encode())
    pipes.stop_requested = True

    end = run(pipes, TimeLimits())

    assert end.cause == "terminated"
    assert bool(pipes.signals) != in_time
    assert (end.reported is not None, end.reported_in_time) == (True, in_time)


@pytest.mark.parametrize(
    ("sigterm", "signals", "requests"),
    [("{}", [signal.SIGTERM], 0), ('{"sigterm": "native"}', [], 1)],
)
def test_a_child_that_sigterm_reaches_is_not_disturbed_by_a_second_signal(
    pipes: Pipes, tmp_path: Path, sigterm: str, signals: list[int], requests: int
) -> None:
    report = tmp_path / "report"
    report.write_text(sigterm + '\n{"phase": "call"}\n')

    run(pipes, TimeLimits(timeout=0.0), report_file=str(report))

    assert (pipes.signals, pipes.requests) == (signals, requests)


@pytest.mark.parametrize("native", [False, True])
def test_the_child_knows_that_it_had_ended_before_the_stop_unless_sigterm_is_native(
    pipes: Pipes, native: bool
) -> None:
    if native:
        pipes.reports(b'{"sigterm": "native"}')
    pipes.reports(b'{"phase": "call"}')
    pipes.stop_requested = True
    pipes.reports_when_stopped = b'{"undisturbed": true}'

    end = run(pipes, TimeLimits())

    assert (end.cause, end.reported_in_time, len(pipes.signals)) == ("terminated", not native, 1)


@pytest.mark.parametrize(("phase", "in_time"), [("call", False), ("report", True)])
def test_a_report_at_the_death_of_the_supervisor_counts_if_the_function_had_ended(
    pipes: Pipes, phase: str, in_time: bool
) -> None:
    pipes.reports(b'{"phase": "%s"}' % phase.encode())
    lifeline, end = os.pipe()
    os.close(end)

    end = run(pipes, TimeLimits(), lifeline)

    os.close(lifeline)
    assert end.cause == (None if in_time else "orphaned")
    assert end.reported_in_time == in_time
    assert not in_time or end.reported is not None


def test_a_warning_follows_the_output_that_was_written_before_it(
    pipes: Pipes,
) -> None:
    pipes.writes(b"half")
    pipes.reports(b'{"warning": "mind"}')
    pipes.stop_requested = True  # Reports of the child are read before its output.

    run(pipes, TimeLimits())

    assert pipes.log == b"half\x10\n\x10\x02[kinetic] Warning: mind\n"


def test_children_of_killed_processes_are_killed_however_many_rounds_that_takes(
    pipes: Pipes,
) -> None:
    pipes.generations = 3

    run(pipes, TimeLimits(remains=0.0))

    assert pipes.generations == 0
