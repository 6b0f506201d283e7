from __future__ import annotations

import io
import threading

import pytest

from kinetic.backends import LogLine
from kinetic.console import Console, elapsed_text, is_terminal

MARKUP = "[info] [/path] [red]x[/red] :smile: \x1b[31mred\x1b[0m"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
    assert MARKUP in err.getvalue()
    assert "running [/path]" in err.getvalue()


def test_on_a_terminal_progress_leaves_nothing_behind_but_notes() -> None:
    console, _, err = a_console(interactive=True)

    with console:
        console.phase("running")
        console.line(LogLine("x"))
        console.phase("running")

    shown = err.getvalue()
    assert shown.count("running") == 1  # the log took over
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


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.9, "59s"), (200, "3m 20s"), (7500, "2h 05m")]
)
def test_elapsed_time_reads_well(seconds: float, text: str) -> None:
    assert elapsed_text(seconds) == text
