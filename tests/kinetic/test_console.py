from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest

from kinetic.backends.backend import LogLine
from kinetic.console import (
    Console,
    is_terminal,
    progress_beside,
    progress_text,
)
from kinetic_payload.progress import Progress

MARKUP = "[info] [/path] [red]x[/red] :smile: \x1b[31mred\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that whoever runs the tests set for a terminal decide what is drawn on ours."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "25"}.items():
        monkeypatch.setenv(name, value)


def a_console(*, interactive: bool = False) -> tuple[Console, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), Terminal() if interactive else io.StringIO()
    return Console(out, err, interactive=interactive, clock=lambda: 0.0), out, err


def test_progress_goes_to_stderr_and_the_log_to_stdout() -> None:
    console, out, err = a_console()

    with console:
        console.phase("packaging")
        console.phase("packaging")
        console.note("one\ntwo")
        console.line(LogLine("hello"))

    assert err.getvalue() == "kinetic: packaging\nkinetic: one\nkinetic: two\n"
    assert out.getvalue() == "hello\n"


@pytest.mark.parametrize("interactive", [False, True])
def test_text_is_never_read_as_markup(interactive: bool) -> None:
    console, out, err = a_console(interactive=interactive)

    with console:
        console.phase("running [/path]")
        console.note(MARKUP)
        console.line(LogLine(MARKUP))

    assert out.getvalue() == f"{MARKUP}\n"
    assert MARKUP.replace("\x1b", "\\x1b") in err.getvalue()
    assert "running [/path]" in err.getvalue()


def test_on_a_terminal_progress_leaves_nothing_behind_but_notes() -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        shown = err.getvalue()
        console.phase("running")

    assert err.getvalue() == shown  # the log took over
    assert shown.index("\x1b[2K") > shown.index("running")  # the line was erased
    assert shown.rstrip().endswith("\x1b[2K")


def test_without_colour_no_colour_is_used() -> None:
    err = Terminal()

    with Console(io.StringIO(), err, interactive=True, color=False) as console:
        console.phase("running")

    assert "\x1b[3" not in err.getvalue()


def test_a_character_that_the_stream_cannot_encode_does_not_end_the_log() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    console = Console(out, io.StringIO(), interactive=False)

    console.line(LogLine("naïve \udcff"))

    assert raw.getvalue() == b"na\\xefve \\udcff\n"


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("interactive", [False, True])
def test_what_cannot_be_said_on_stderr_is_not_raised(interactive: bool) -> None:
    out, clock = io.StringIO(), Clock()

    with Console(out, Gone(), interactive=interactive, clock=clock) as console:
        console.phase("packaging")
        console.note("a note")
        with console.progress("uploading data", 100) as advance:
            clock.now += 10
            advance(50)
        console.line(LogLine("hello"))
        console.text("to be copied")

    assert out.getvalue() == "hello\n"


def test_a_log_that_nobody_reads_is_raised_to_whoever_follows_it() -> None:
    console = Console(Gone(), io.StringIO(), interactive=False)

    with pytest.raises(BrokenPipeError):
        console.line(LogLine("hello"))


def test_lines_of_several_threads_do_not_mix() -> None:
    console, out, _ = a_console()

    def say(host: int) -> None:
        for _ in range(200):
            console.line(LogLine("abcdefgh", host=host, hosts=4))

    threads = [threading.Thread(target=say, args=(host,)) for host in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    allowed = {f"[host {host}] abcdefgh" for host in range(4)}
    assert set(out.getvalue().splitlines()) == allowed
    assert len(out.getvalue().splitlines()) == 800


def test_hosts_other_than_the_leader_are_named() -> None:
    assert LogLine("x").shown == "x"
    assert LogLine("x", host=2, hosts=4).shown == "[host 2] x"
    assert LogLine("x", host=0, hosts=4).shown == "[host 0] x"


def test_streams_that_are_closed_or_missing_are_no_terminals() -> None:
    closed = io.StringIO()
    closed.close()

    assert not is_terminal(None)
    assert not is_terminal(closed)
    Console(None, None, interactive=False).note("nobody hears this")  # type: ignore[arg-type]


# Bytes on their way


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def wait_for(shown: io.StringIO, text: str) -> None:
    """Wait until the display, which is drawn a few times a second, has shown *text*."""
    for _ in range(3000):
        if text in shown.getvalue():
            return
        threading.Event().wait(0.02)
    raise AssertionError(shown.getvalue())


def test_what_is_quick_is_not_told() -> None:
    console, _, err = a_console()

    with console, console.progress("uploading data", 1000) as advance:
        advance(1000)

    assert err.getvalue() == ""


def test_what_takes_long_is_one_line_with_its_total() -> None:
    err, clock = io.StringIO(), Clock()
    console = Console(io.StringIO(), err, interactive=False, clock=clock)

    for _ in range(2):
        with console.progress("uploading data", 3_000_000) as advance:
            for _ in range(3):
                clock.now += 0.6
                advance(1_000_000)

    assert err.getvalue() == "kinetic: uploading data (3.0 MB)\n"


def test_on_a_terminal_bytes_rate_and_time_left_are_shown_in_place() -> None:
    err, clock = Terminal(), Clock()
    console = Console(io.StringIO(), err, interactive=True, clock=clock)

    with console:
        console.phase("packaging")
        with console.progress("uploading data", 3_000_000) as advance:
            clock.now += 2.0
            advance(1_000_000)
            wait_for(err, "uploading data: 1.0 MB of 3.0 MB, 500.0 kB/s, 4s left")
        console.phase("running")

    assert not err.getvalue().endswith("\n")


def test_after_the_log_bytes_are_shown_and_leave_nothing_behind() -> None:
    err, clock = Terminal(), Clock()
    console = Console(io.StringIO(), err, interactive=True, clock=clock)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        with console.progress("downloading the value", None) as advance:
            clock.now += 2.0
            advance(1_000_000)
            wait_for(err, "downloading the value: 1.0 MB, 500.0 kB/s")
        shown = len(err.getvalue())
        console.line(LogLine("y"))
        assert len(err.getvalue()) == shown


def say_something(console: Console, clock: Clock) -> None:
    console.note("by the way")


def move_something_else(console: Console, clock: Clock) -> None:
    with console.progress("downloading the value", None) as advance:
        clock.now += 2.0
        advance(1)


@pytest.mark.parametrize("meanwhile", [say_something, move_something_else])
def test_after_the_log_the_last_bytes_take_the_display_away(
    meanwhile: Callable[[Console, Clock], None],
) -> None:
    err, clock = Terminal(), Clock()
    console = Console(io.StringIO(), err, interactive=True, clock=clock)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        with console.progress("uploading data", None) as advance:
            clock.now += 2.0
            advance(1)
            meanwhile(console, clock)
        shown = len(err.getvalue())
        console.line(LogLine("y"))
        assert len(err.getvalue()) == shown


@pytest.mark.parametrize("interactive", [False, True])
def test_bytes_that_are_counted_after_the_end_are_not_shown(interactive: bool) -> None:
    err, clock = Terminal(), Clock()
    console = Console(io.StringIO(), err, interactive=interactive, clock=clock)

    with console.progress("uploading data", 1) as advance:
        pass
    clock.now += 2.0
    advance(1)

    assert err.getvalue() == ""


def works(clock: Clock, *given: tuple[str, int | None, int]) -> list[Progress]:
    made = []
    for doing, total, done in given:
        work = Progress(doing, total, clock=clock)
        work.advance(done)
        made.append(work)
    clock.now += 2.0
    return made


def test_the_same_work_is_summed_up_and_other_work_takes_turns() -> None:
    clock = Clock()
    going = works(clock, ("up", 4_000, 1_000), ("down", 9_000, 3_000), ("up", 8_000, 2_000))

    assert progress_text(going, 0) == "up: 3.0 kB of 12.0 kB, 1.5 kB/s, 6s left"
    assert progress_text(going, 1) == "down: 3.0 kB of 9.0 kB, 1.5 kB/s, 4s left"
    assert progress_text(going, 2) == progress_text(going, 0)
    assert progress_text(works(clock, ("up", None, 1), ("up", 4, 1)), 0) == "up: 2 B, 1 B/s"
    assert progress_text([], 0) == ""


def test_without_a_console_what_takes_long_is_said_where_it_is_kept() -> None:
    said: list[str] = []
    clock = Clock()
    quick, slow = (
        progress_beside(said.append, clock=clock),
        progress_beside(said.append, clock=clock),
    )

    with quick("uploading data", 1) as advance:
        advance(1)
    with slow("uploading data", 3_000_000) as advance:
        for _ in range(3):
            clock.now += 2.0
            advance(1_000_000)

    assert said == ["uploading data (3.0 MB)"]
