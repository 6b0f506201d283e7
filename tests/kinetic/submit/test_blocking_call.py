from __future__ import annotations

import io
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic.backends.backend import LogLine
from kinetic.console import Console
from kinetic.errors import InvalidRequestError
from kinetic.job_status import JobStatus
from kinetic.submit.blocking_call import call
from kinetic_payload.layout import RAISED
from kinetic_payload.testing import MemoryStore

JOB_ID = "cpu-f-20260101-000000-abcdef0"
REQUEST: Any = SimpleNamespace(debug=False)


class Handle:
    """A job that prints a line, perhaps ends, and then calls *end*."""

    job_id = JOB_ID
    func_name = "f"
    debug = False

    def __init__(
        self,
        end: Callable[[], Any],
        *,
        ended: JobStatus | None = None,
        outputs: Sequence[str] = (),
        log: Sequence[LogLine] = (LogLine("working"),),
        traceback: str = "",
    ) -> None:
        self._end = end
        self._ended = ended
        self._log = log
        self.cancelled = False
        self._session = SimpleNamespace(collected=SimpleNamespace(traceback=traceback))
        store = MemoryStore()
        for name in outputs:
            store.write(f"outputs/{JOB_ID}/{name}", b"")
        self._services = SimpleNamespace(store=store)

    def _collect(
        self, *, on_line: Any, on_status_change: Any, on_reason: Any, track: Any, warn: Any
    ) -> Any:
        on_status_change(JobStatus.PENDING)
        on_reason("no node")
        on_status_change(JobStatus.RUNNING)
        for line in self._log:
            on_line(line)
        warn("a note")
        if self._ended is not None:
            on_status_change(self._ended)
        return self._end()

    def cancel(self) -> None:
        self.cancelled = True


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


interrupt = raising(KeyboardInterrupt())


def blocking(
    handle: Handle,
    ask: Callable[[str], str] | None = None,
    submit: Callable[..., Any] | None = None,
) -> tuple[Any, str, str]:
    """Return the value of the call, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err, interactive=False)
    submit = submit or (lambda *_, **__: handle)
    try:
        value = call(REQUEST, len, (), {}, submit=submit, console=console, ask=ask)
    except KeyboardInterrupt:
        value = KeyboardInterrupt
    return value, out.getvalue(), err.getvalue()


@pytest.mark.parametrize(("outputs", "shown"), [([], False), (["a/b"], True)])
def test_a_call_that_goes_well_shows_its_log_and_two_lines_and_returns_the_value(
    outputs: list[str], shown: bool
) -> None:
    value, out, err = blocking(Handle(lambda: 42, outputs=outputs))

    assert value == 42
    assert out == "working\n"
    first, note, done = err.splitlines()
    assert (first, note) == (f"kinetic: submitted {JOB_ID}", "kinetic: a note")
    assert done.startswith("kinetic: done in ")
    assert done.endswith(f"/outputs/{JOB_ID}/") is shown


LOG = [LogLine("before"), LogLine(f"{RAISED}2"), LogLine("Traceback …"), LogLine("ValueError: no")]
LATER = [LogLine("[kinetic] Attempt 2 begins.", 0, 2), LogLine("after", 0, 2)]


@pytest.mark.parametrize(
    ("log", "whole_log", "shown"),
    [
        (LOG, False, LOG[:1]),
        (LOG, True, LOG),
        ([*LOG, LogLine("printed later")], False, [LOG[0], LogLine("printed later")]),
        (
            [LogLine(f"{RAISED}1"), LogLine("theirs")],
            False,
            [LogLine(f"{RAISED}1"), LogLine("theirs")],
        ),
        ([*LOG, *LATER], False, [*LOG, *LATER]),  # Another attempt: its exception is not raised.
        ([*LOG, *LATER, *(replace(x, attempt=2) for x in LOG[1:])], False, [*LOG, *LATER]),
    ],
)
def test_the_traceback_of_the_exception_that_is_raised_is_not_shown_in_the_log_as_well(
    log: list[LogLine], whole_log: bool, shown: list[LogLine]
) -> None:
    out = io.StringIO()
    handle = Handle(raising(ValueError("no")), log=log, traceback="Traceback …\nValueError: no\n")
    console = Console(out, io.StringIO(), interactive=False, whole_log=whole_log)

    with pytest.raises(ValueError, match="no"):
        call(REQUEST, len, (), {}, submit=lambda *_, **__: handle, console=console)

    assert out.getvalue() == "".join(f"{line.text}\n" for line in shown)


def test_calls_at_the_same_time_name_themselves_in_each_line() -> None:
    inner: list[str] = []

    def end() -> None:
        inner.append(blocking(Handle(lambda: 1))[1])

    _, out, _ = blocking(Handle(end))

    assert (out, inner) == ("working\n", ["[f abcdef0] working\n"])


@pytest.mark.parametrize(("terminal", "wanted"), [(False, False), (True, False), (False, True)])
def test_a_debug_job_without_a_terminal_is_refused_before_it_is_submitted(
    terminal: bool, wanted: bool
) -> None:
    settings = SimpleNamespace(no_tty_debug=SimpleNamespace(value=wanted))
    request: Any = SimpleNamespace(debug=True, settings=settings)
    console = Console(io.StringIO(), io.StringIO(), interactive=terminal)
    submitted: list[bool] = []

    def submit(*args: object, **kwargs: object) -> Any:
        submitted.append(True)
        return Handle(lambda: 42)

    if terminal or wanted:
        assert call(request, len, (), {}, submit=submit, console=console) == 42
    else:
        with pytest.raises(InvalidRequestError, match="not a terminal") as refused:
            call(request, len, (), {}, submit=submit, console=console)
        assert "KINETIC_NO_TTY_DEBUG=1" in refused.value.hint
        assert "debug_attach()" in refused.value.hint
        assert not submitted


@pytest.mark.parametrize(
    ("ask", "cancelled"),
    [
        (None, False),  # There is no terminal.
        (lambda _: "y", True),
        (lambda _: "", False),
        (lambda _: "n", False),
        (raising(KeyboardInterrupt()), False),
        (raising(EOFError()), False),
        (raising(OSError(5, "Input/output error")), False),  # The terminal is gone.
    ],
)
def test_ctrl_c_cancels_the_job_only_if_the_answer_is_yes(
    ask: Callable[[str], str] | None, cancelled: bool
) -> None:
    handle = Handle(interrupt)

    value, _, err = blocking(handle, ask=ask)

    assert value is KeyboardInterrupt
    assert handle.cancelled is cancelled
    assert ("Cancelled" in err) is cancelled
    assert ("not cancelled" in err) is (ask is not None and not cancelled)
    for command in ("kinetic.attach(", "kinetic jobs logs --follow", "kinetic jobs cancel"):
        assert command in err
    assert JOB_ID in err


@pytest.mark.parametrize("ended", [JobStatus.SUCCEEDED, JobStatus.FAILED])
def test_ctrl_c_after_the_end_of_the_job_names_the_command_for_its_result(ended: JobStatus) -> None:
    handle = Handle(interrupt, ended=ended)

    value, _, err = blocking(handle, ask=lambda question: "y")

    assert value is KeyboardInterrupt
    assert not handle.cancelled
    assert "keeps running" not in err
    assert f"has ended: {JOB_ID}" in err
    assert f"kinetic jobs result {JOB_ID}" in err


def test_ctrl_c_during_the_submit_reports_that_the_job_was_not_started() -> None:
    value, _, err = blocking(Handle(interrupt), submit=interrupt)

    assert value is KeyboardInterrupt
    assert err.startswith("kinetic: The job was not started.")


def test_the_traceback_of_ctrl_c_hides_what_was_going_on() -> None:
    def look() -> None:
        try:
            raise FileNotFoundError("There is no outcome yet.")
        except FileNotFoundError:
            raise KeyboardInterrupt

    console = Console(io.StringIO(), io.StringIO(), interactive=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        call(REQUEST, len, (), {}, submit=lambda *a, **k: Handle(look), console=console)

    shown = "".join(traceback.format_exception(caught.value))
    assert "outcome" not in shown
    assert shown.count('File "') == 2
