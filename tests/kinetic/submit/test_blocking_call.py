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
    """A job that prints a line, perhaps ends, and then calls *end*."""

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


def test_a_blocking_call_shows_status_and_log_and_returns_the_value() -> None:
    value, out, err = blocking(Handle(lambda: 42))

    assert value == 42
    assert out == "working\n"
    assert err == "kinetic: waiting to start\nkinetic: running\nkinetic: a note\n"


def test_the_exception_of_the_function_is_raised() -> None:
    with pytest.raises(ZeroDivisionError, match="of the function"):
        blocking(Handle(raising(ZeroDivisionError("of the function"))))


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
