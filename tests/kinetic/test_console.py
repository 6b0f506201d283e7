from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetic.backends.backend import LogLine
from kinetic.console import Console, progress_beside, progress_text
from kinetic.log_parts import LogPrinter
from kinetic_payload.progress import Progress

MARKUP = "[info] [/path] [red]x[/red] :smile: \x1b[31mred\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Broken(Terminal):
    """A stream whose reader is gone and whose disk is full."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore what this machine sets for its own terminals."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "25"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def a_console(clock: Clock) -> Callable[..., Any]:
    def make(
        *, interactive: bool = False, **options: Any
    ) -> tuple[Console, io.StringIO, io.StringIO]:
        out, err = io.StringIO(), Terminal() if interactive else io.StringIO()
        return Console(out, err, interactive=interactive, clock=clock, **options), out, err

    return make


def wait_for(shown: io.StringIO, text: str) -> None:
    """Wait until the display, which is drawn a few times a second, has shown *text*."""
    for _ in range(3000):
        if text in shown.getvalue():
            return
        threading.Event().wait(0.02)
    raise AssertionError(shown.getvalue())


def test_phases_and_notes_go_to_stderr_and_the_log_to_stdout(a_console: Callable[..., Any]) -> None:
    console, out, err = a_console()

    with console:
        console.phase("packaging")
        console.phase("packaging")
        console.note("one\ntwo")
        console.line(LogLine("hello"))
        console.line(LogLine("there", host=2, hosts=4))
        console.line(LogLine("again", host=0, hosts=4))
        console.print_held()

    assert err.getvalue() == "kinetic: one\nkinetic: two\n"
    assert out.getvalue() == "hello\n[host 2] there\n[host 0] again\n"


def test_a_note_does_not_continue_an_unfinished_line_nor_change_what_a_file_gets(
    a_console: Callable[..., Any],
) -> None:
    console, out, err = a_console()

    for stream in ("stdout", "stderr"):
        console.line(LogLine("Load", stream=stream, end=""))
    console.note("note")
    for stream in ("stdout", "stderr"):
        console.line(LogLine("ed", stream=stream))
    console.line(LogLine("last", end=""))
    console.print_held()

    assert out.getvalue() == "Loaded\nlast\n"
    assert err.getvalue() == "Load\nkinetic: note\ned\n"


def test_a_phase_is_shown_with_its_reason_which_ends_with_it(
    a_console: Callable[..., Any],
) -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("waiting to start")
        console.reason("No node has a free GPU.\n")
        wait_for(err, "No node has a free GPU.\\n")
        console.phase("running")
        wait_for(err, "running")

    assert "GPU" not in err.getvalue().partition("running")[2]


@pytest.mark.parametrize("interactive", [False, True])
def test_text_is_never_read_as_markup(interactive: bool, a_console: Callable[..., Any]) -> None:
    console, out, err = a_console(interactive=interactive, color=False)

    with console:
        console.phase("running [/path]")
        console.note(MARKUP)
        console.line(LogLine(MARKUP))

    assert out.getvalue() == f"{MARKUP}\n"
    assert MARKUP.replace("\x1b", "\\x1b") in err.getvalue()
    assert ("running [/path]" in err.getvalue()) is interactive
    assert "\x1b[3" not in err.getvalue(), "color=False"


def test_the_display_of_a_phase_is_erased_when_the_log_begins(
    a_console: Callable[..., Any],
) -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        shown = err.getvalue()
        console.phase("running")

    assert err.getvalue() == shown
    assert shown.index("\x1b[2K") > shown.index("running")
    assert shown.rstrip().endswith("\x1b[2K")


def test_a_character_that_the_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")

    Console(out, io.StringIO(), interactive=False).line(LogLine("naïve \udcff"))

    assert raw.getvalue() == b"na\\xefve \\udcff\n"


class Unencodable(Terminal):
    """A stream that cannot encode any text."""

    def write(self, text: str) -> int:
        raise UnicodeEncodeError("latin-1", text, 0, 1, "ordinal not in range(256)")


@pytest.mark.parametrize("stream", [Broken, Unencodable])
@pytest.mark.parametrize("interactive", [False, True])
def test_errors_of_stderr_are_ignored_and_those_of_stdout_are_raised(
    interactive: bool, stream: type[io.StringIO], clock: Clock
) -> None:
    out = io.StringIO()

    with Console(out, stream(), interactive=interactive, clock=clock) as console:
        console.phase("packaging")
        console.note("a note")
        with console.progress("uploading data", 100) as advance:
            clock.now += 10
            advance(50)
        console.line(LogLine("hello"))
        console.text("to be copied")

    assert out.getvalue() == "hello\n"
    with pytest.raises(BrokenPipeError):
        Console(Broken(), io.StringIO(), interactive=False).line(LogLine("hello"))


def test_lines_of_several_threads_do_not_mix(a_console: Callable[..., Any]) -> None:
    console, out, _ = a_console()

    def print_lines(host: int) -> None:
        for _ in range(200):
            console.line(LogLine(str(host) * 8, host=host, hosts=4))

    threads = [threading.Thread(target=print_lines, args=(host,)) for host in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    console.print_held()

    assert sorted(out.getvalue().splitlines()) == [
        f"[host {host}] {str(host) * 8}" for host in range(4) for _ in range(200)
    ]


# Lines of several hosts


@given(st.data(), st.booleans(), st.booleans())
def test_of_several_hosts_no_line_is_lost_or_moved_and_a_line_of_all_is_printed_once(
    data: st.DataObject, flush: bool, related: bool
) -> None:
    texts = st.lists(st.sampled_from("abcd"), max_size=8)
    shared, hosts = data.draw(texts), data.draw(st.integers(2, 4))
    logs = [list(shared) if related else data.draw(texts) for _ in range(hosts)]
    for host, log in enumerate(logs if related else []):  # What others do not have.
        for number, at in enumerate(data.draw(st.lists(st.integers(0, 8), max_size=4))):
            log.insert(at, f"{number} of {host}")
    out, left = io.StringIO(), [list(log) for log in logs]
    # One stream for both, so that the order of all lines is seen.
    printer = LogPrinter(out, out, write=lambda stream, text: stream.write(text), flush=flush)
    while arriving := [host for host in range(hosts) if left[host]]:
        host = data.draw(st.sampled_from(arriving))
        printer.line(LogLine(left[host].pop(0), host=host, hosts=hosts))
    printer.close()

    printed = [line[1:].split("] ") for line in out.getvalue().splitlines()]
    for host in range(hosts):
        mine = (f"{hosts} hosts", f"host {host}")
        assert [text for where, text in printed if where in mine] == logs[host]
    if related and not flush:  # Where lines are flushed, they wait for half a second only.
        assert [text for where, text in printed if where == f"{hosts} hosts"] == shared


# Progress of transfers


def test_a_long_transfer_is_one_line_with_its_total_and_a_short_one_none(
    a_console: Callable[..., Any], clock: Clock
) -> None:
    console, _, err = a_console()

    with console.progress("downloading", 1000) as advance:
        advance(1000)
    for _ in range(2):
        with console.progress("uploading data", 3_000_000) as advance:
            for _ in range(3):
                clock.now += 0.6
                advance(1_000_000)

    assert err.getvalue() == "kinetic: uploading data (3.0 MB)\n"


def test_on_a_terminal_a_transfer_is_shown_in_place_of_the_phase(
    a_console: Callable[..., Any], clock: Clock
) -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("packaging")
        with console.progress("uploading data", 3_000_000) as advance:
            clock.now += 2.0
            advance(1_000_000)
            wait_for(err, "uploading data: 1.0 MB of 3.0 MB, 500.0 kB/s, 4s left")
        console.phase("running")

    assert not err.getvalue().endswith("\n")


def print_a_note(console: Console, clock: Clock) -> None:
    console.note("by the way")


def transfer_something_else(console: Console, clock: Clock) -> None:
    with console.progress("downloading the value", None) as advance:
        clock.now += 2.0
        advance(1)


@pytest.mark.parametrize("meanwhile", [None, print_a_note, transfer_something_else])
def test_a_transfer_after_the_log_began_is_shown_and_then_erased(
    meanwhile: Callable[[Console, Clock], None] | None, a_console: Callable[..., Any], clock: Clock
) -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        with console.progress("uploading data", None) as advance:
            clock.now += 2.0
            advance(1_000_000)
            if meanwhile:
                meanwhile(console, clock)
            else:
                wait_for(err, "uploading data: 1.0 MB, 500.0 kB/s")
        shown = len(err.getvalue())
        console.line(LogLine("y"))
        assert len(err.getvalue()) == shown


def test_transfers_of_one_kind_are_summed_and_the_first_kind_is_shown(clock: Clock) -> None:
    def going(*given: tuple[str, int | None, int]) -> list[Progress]:
        made = []
        for doing, total, done in given:
            made.append(Progress(doing, total, clock=clock))
            made[-1].advance(done)
        clock.now += 2.0
        return made

    two = going(("up", 4_000, 1_000), ("down", 9_000, 3_000), ("up", 8_000, 2_000))

    assert progress_text(two) == "up: 3.0 kB of 12.0 kB, 1.5 kB/s, 6s left"
    assert progress_text(two[1:2]) == "down: 3.0 kB of 9.0 kB, 1.5 kB/s, 4s left"
    assert progress_text(going(("up", None, 1), ("up", 4, 1))) == "up: 2 B, 1 B/s"
    assert progress_text([]) == ""


def test_without_a_console_a_long_transfer_is_reported_once(clock: Clock) -> None:
    reported: list[str] = []
    track = progress_beside(reported.append, clock=clock)

    with track("downloading", 1) as advance:
        advance(1)
    with track("uploading data", 3_000_000) as advance:
        for _ in range(3):
            clock.now += 2.0
            advance(1_000_000)

    assert reported == ["uploading data (3.0 MB)"]
