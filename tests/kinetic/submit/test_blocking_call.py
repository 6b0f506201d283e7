from __future__ import annotations

import io
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kinetic.backends.backend import LogLine
from kinetic.console import Console
from kinetic.errors import InvalidRequestError
from kinetic.job_status import JobStatus
from kinetic.submit.blocking_call import call

JOB_ID = "cpu-f-20260101-000000-abcdef0"
REQUEST: Any = SimpleNamespace(debug=False)


class Handle:
    """A job that prints, then ends as it is told to."""

    job_id = JOB_ID
    debug = False

    def __init__(self, end: Callable[[], Any], *, ended: JobStatus | None = None) -> None:
        self._end = end
        self._ended = ended
        self.cancelled = False

    def _collect(self, *, on_line: Any, on_status_change: Any, track: Any, warn: Any) -> Any:
        on_status_change(JobStatus.PENDING)
        on_status_change(JobStatus.RUNNING)
        on_line(LogLine("working"))
        warn("a note")
        if self._ended is not None:
            on_status_change(self._ended)
        return self._end()

    def cancel(self) -> None:
        self.cancelled = True


def interrupt() -> None:
    raise KeyboardInterrupt


def blocking(handle: Handle, ask: Callable[[str], str] | None = None) -> tuple[Any, str, str]:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out, err, interactive=False)
    try:
        value = call(REQUEST, len, (), {}, submit=lambda *a, **k: handle, console=console, ask=ask)
    except KeyboardInterrupt:
        value = KeyboardInterrupt
    return value, out.getvalue(), err.getvalue()


def test_a_blocking_call_shows_status_and_log_and_returns_the_value() -> None:
    value, out, err = blocking(Handle(lambda: 42))

    assert value == 42
    assert out == "working\n"
    assert err == "kinetic: waiting to start\nkinetic: running\nkinetic: a note\n"


def test_the_users_exception_passes_through() -> None:
    def fail() -> None:
        raise ZeroDivisionError("theirs")

    with pytest.raises(ZeroDivisionError, match="theirs"):
        blocking(Handle(fail))


@pytest.mark.parametrize(("terminal", "wanted"), [(False, False), (True, False), (False, True)])
def test_a_debug_job_needs_a_terminal_to_print_on_before_anything_is_packaged(
    terminal: bool, wanted: bool
) -> None:
    settings = SimpleNamespace(no_tty_debug=SimpleNamespace(value=wanted))
    request: Any = SimpleNamespace(debug=True, settings=settings)
    console = Console(io.StringIO(), io.StringIO(), interactive=terminal)
    submitted: list[bool] = []

    def submit(*args: object, **kwargs: object) -> Any:
        submitted.append(True)
        return Handle(lambda: 42)

    def blocking_call() -> Any:
        return call(request, len, (), {}, submit=submit, console=console)

    if terminal or wanted:
        assert blocking_call() == 42
    else:
        with pytest.raises(InvalidRequestError, match="not a terminal") as refused:
            blocking_call()
        assert "KINETIC_NO_TTY_DEBUG=1" in refused.value.hint
        assert "debug_attach()" in refused.value.hint
        assert not submitted


def test_ctrl_c_without_a_terminal_says_how_to_come_back_and_asks_nothing() -> None:
    handle = Handle(interrupt)

    value, _, err = blocking(handle)

    assert value is KeyboardInterrupt
    assert f'kinetic.attach("{JOB_ID}")' in err
    assert f"kinetic jobs logs --follow {JOB_ID}" in err
    assert f"kinetic jobs cancel {JOB_ID}" in err
    assert not handle.cancelled


def test_ctrl_c_shows_nothing_of_what_we_were_about_when_it_came() -> None:
    def look() -> None:
        try:
            raise FileNotFoundError("There is no outcome yet.")
        except FileNotFoundError:
            interrupt()

    console = Console(io.StringIO(), io.StringIO(), interactive=False)
    with pytest.raises(KeyboardInterrupt) as caught:
        call(REQUEST, len, (), {}, submit=lambda *a, **k: Handle(look), console=console)

    shown = "".join(traceback.format_exception(caught.value))
    assert "outcome" not in shown
    assert shown.count('File "') == 2


@pytest.mark.parametrize(("answer", "cancelled"), [("y", True), ("", False), ("n", False)])
def test_ctrl_c_on_a_terminal_asks_whether_to_cancel(answer: str, cancelled: bool) -> None:
    handle = Handle(interrupt)

    value, _, err = blocking(handle, ask=lambda question: answer)

    assert value is KeyboardInterrupt
    assert handle.cancelled is cancelled
    assert ("Cancelled" in err) is cancelled


@pytest.mark.parametrize("second", [KeyboardInterrupt, EOFError])
def test_a_second_ctrl_c_is_no_answer(second: type[BaseException]) -> None:
    handle = Handle(interrupt)

    def ask(question: str) -> str:
        raise second

    value, _, err = blocking(handle, ask=ask)

    assert value is KeyboardInterrupt
    assert not handle.cancelled
    assert "not cancelled" in err


def test_a_terminal_that_is_gone_is_no_answer() -> None:
    handle = Handle(interrupt)

    def ask(question: str) -> str:
        raise OSError(5, "Input/output error")

    value, _, err = blocking(handle, ask=ask)

    assert value is KeyboardInterrupt
    assert not handle.cancelled
    assert "not cancelled" in err


@pytest.mark.parametrize("ended", [JobStatus.SUCCEEDED, JobStatus.FAILED])
def test_ctrl_c_after_the_job_has_ended_does_not_say_that_it_goes_on(ended: JobStatus) -> None:
    handle = Handle(interrupt, ended=ended)

    value, _, err = blocking(handle, ask=lambda question: "y")

    assert value is KeyboardInterrupt
    assert not handle.cancelled
    assert "keeps running" not in err
    assert f"has ended: {JOB_ID}" in err
    assert f"kinetic jobs result {JOB_ID}" in err


def test_ctrl_c_while_submitting_says_that_nothing_runs() -> None:
    err = io.StringIO()

    def submit(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(REQUEST, len, (), {}, submit=submit, console=Console(err, err, interactive=False))

    assert err.getvalue().startswith("kinetic: The job was not started.")
