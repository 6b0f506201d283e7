"""The console of a blocking call: progress on stderr, the job's log on the streams where the job wrote it."""

from __future__ import annotations

import builtins
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, cast

from kinetic.log_parts import LogPrinter
from kinetic_payload.layout import RAISED
from kinetic_payload.printable import printable, printable_line
from kinetic_payload.progress import Progress, duration_text, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinetic.backends.backend import LogLine
    from kinetic.settings.settings import Settings
    from kinetic_payload.progress import Advance, TrackProgress

_WORTH_SHOWING: Final = 1.0
"""Seconds after which the progress of a piece of work is shown."""
_CONNECTED: Final = re.compile(
    r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected number of connected peer ranks is : \d+"
)
"""What JAX's library for several hosts on CPUs prints for each of them, always."""


_open: Final[set[Console]] = set()
"""The consoles of the calls that this process waits for."""


class Console:
    """Print what a blocking call does. May be used from any thread.

    Errors of stderr are never raised, since they must not end the call. Errors of stdout are raised by
    `line` only.

    On a terminal, the current phase is shown with its elapsed time until the log begins. During a long
    transfer, its progress is shown instead. Elsewhere, each kind of long transfer is printed as a line, by
    *report*. If *progress* is `off`, only warnings and the log are printed. Text is never interpreted as markup.

    The traceback of the function's exception at the end of the log is held back, because the exception that is
    raised has it, unless the *whole_log* is wanted.
    """

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        *,
        interactive: bool,
        color: bool = True,
        progress: str = "auto",
        whole_log: bool = False,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.interactive = interactive
        self._report = report or (lambda text: self._print(f"kinetic: {text}"))
        self._stdout = stdout
        self._stderr = _Harmless(stderr)
        self._color = color
        self._live_wanted = interactive and progress == "auto"
        self._progress_wanted = progress != "off"
        self._whole_log = whole_log
        self._held: dict[int, list[LogLine]] = {}
        """By host, the lines of the log from its exception on."""
        self._clock = clock
        self._lock = threading.RLock()
        self._log = LogPrinter(
            stdout, cast("TextIO", self._stderr), write=self._write_log, lock=self._lock
        )
        self.label = ""
        """What the lines begin with while other calls print as well."""
        self._phase = self._reason = ""
        self._began = 0.0
        self._live: Any = None
        self._works: list[Progress] = []
        self._printed: set[str] = set()
        self._transfer_only = False
        """Whether the display is there only for a transfer, because the log has ended that of the phase."""

    @classmethod
    def of_this_process(cls, settings: Settings | None = None) -> Console:
        """Return a console on this process's streams, interactive if stderr is a terminal; *settings* say what it shows."""
        interactive = is_terminal(sys.stderr)
        if settings is None:
            return cls(sys.stdout, sys.stderr, interactive=interactive)
        return cls(
            sys.stdout,
            sys.stderr,
            interactive=interactive,
            color=not settings.no_color.value,
            progress=settings.progress.value,
            # Earlier versions of IPython do not print the notes of an exception, which have the traceback.
            whole_log=settings.traceback.value == "full" or "get_ipython" in vars(builtins),
        )

    def phase(self, text: str) -> None:
        """Show that the phase *text* begins."""
        with self._lock:
            if text == self._phase:
                return
            self._phase, self._began, self._reason = text, self._clock(), ""
            self._transfer_only = False
            if self._live_wanted:
                self._show()

    def reason(self, text: str) -> None:
        """Show, with the phase, why it lasts."""
        self._reason = printable_line(text)

    def step(self, text: str) -> None:
        """Show a step of what takes minutes: as the phase, or as a line where no phase is shown."""
        (self.phase if self._live_wanted else self.say)(text)

    def say(self, text: str) -> None:
        """Print a line about a call that goes well."""
        if self._progress_wanted:
            self.note(text)

    def note(self, text: str) -> None:
        """Print a line that stays visible; control characters are escaped."""
        with self._lock:
            shown, transfer_only = self._live is not None, self._transfer_only
            self._hide()
            self._log.make_room()
            for line in printable(text).splitlines() or [""]:
                self._print(f"kinetic: {self._prefix}{line}")
            if shown:
                self._show()
                self._transfer_only = transfer_only

    @contextmanager
    def progress(self, doing: str, total: int | None) -> Iterator[Advance]:
        """Show the progress of work such as `uploading data`, if it takes longer than a second."""
        work = Progress(doing, total, clock=self._clock)
        shown = False

        def advance(size: int) -> None:
            nonlocal shown
            work.advance(size)
            if not shown and work.seconds >= _WORTH_SHOWING and self._progress_wanted:
                shown = True
                self._show_work(work)

        self._works.append(work)
        try:
            yield advance
        finally:
            with self._lock:
                self._works.remove(work)
                if self._transfer_only and not self._works:
                    self._hide()

    def text(self, text: str) -> None:
        """Print *text* unchanged, so that it can be copied."""
        with self._lock:
            self._hide()
            self._log.make_room()
            self._print(text)

    def line(self, line: LogLine) -> None:
        """Print a line of the job's log on its stream. On a terminal this ends the display of the phase.

        Raises:
            OSError: stdout is closed, or its disk is full.
        """
        with self._lock:
            if self._whole_log:
                self._print_lines([line])
                return
            if any(line.attempt > held[0].attempt for held in self._held.values()):
                self.print_held()  # The job goes on: the exception of this attempt is not raised.
            held = self._held.get(line.host, [])
            if (
                held
                and line.stream == held[0].stream
                and len([each for each in held if each.end]) <= _lines_after(held[0])
            ):
                held.append(line)
            elif not held and _lines_after(line):
                self._held[line.host] = [line]
            elif not _CONNECTED.fullmatch(line.text):
                self._print_lines([line])

    def print_held(self, *, but: str = "") -> None:
        """Print the lines of the log that were held back, except for those of the traceback *but*.

        Raises:
            OSError: stdout is closed, or its disk is full.
        """
        with self._lock:
            held, self._held = self._held, {}
            for lines in held.values():
                # Other hosts have the same traceback with other folders.
                text = "\n".join(line.text for line in lines[1:])
                if not but or _anywhere(text) != _anywhere(but):
                    self._print_lines(lines)
            self._log.close()

    def _print_lines(self, lines: Sequence[LogLine]) -> None:
        self._hide()
        for line in lines:
            self._log.line(line, self._prefix)

    def _write_log(self, stream: TextIO, text: str) -> None:
        self._hide()  # Lines that waited for other hosts are printed later.
        _write(stream, text)

    def done(self) -> None:
        """Remove the display of the phase."""
        with self._lock:
            self._hide()
            self._phase = ""

    def __enter__(self) -> Self:
        _open.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.done()
        _open.discard(self)

    @property
    def _prefix(self) -> str:
        return f"[{self.label}] " if self.label and len(_open) > 1 else ""

    def _print(self, line: str) -> None:
        self._stderr.write(f"{line}\n")
        self._stderr.flush()

    def _show_work(self, work: Progress) -> None:
        with self._lock:
            if work not in self._works:
                return  # The work has ended, so nothing would remove the display again.
            if self._live_wanted:
                if self._live is None:
                    self._transfer_only = True
                self._show()
            elif work.doing not in self._printed:
                self._printed.add(work.doing)
                amount = "" if work.total is None else f" ({size_text(work.total)})"
                self._report(f"{work.doing}{amount}")

    def _show(self) -> None:
        if self._live is not None:
            return
        from rich.console import Console as RichConsole
        from rich.live import Live

        terminal = RichConsole(
            file=cast("TextIO", self._stderr),
            no_color=not self._color,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._live = Live(
            get_renderable=self._progress,
            console=terminal,
            refresh_per_second=4,
            transient=True,
            # User code may be writing to the process's own streams.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _hide(self) -> None:
        live, self._live, self._transfer_only = self._live, None, False
        if live is not None:
            live.stop()

    def _progress(self) -> RenderableType:
        from rich.text import Text

        # Do not take the lock: the thread that stops the display holds it while it waits for this thread.
        phase, began, now = self._phase, self._began, self._clock()
        shown = Text(no_wrap=True, overflow="ellipsis")
        shown.append("kinetic ", style="bold")
        if moving := progress_text(self._works):
            shown.append(moving)
        else:
            shown.append(f"{phase} ")
            shown.append(duration_text(now - began), style="dim")
            if reason := self._reason:
                shown.append(f" {reason}")
        return shown


def _lines_after(line: LogLine) -> int:
    """Return how many lines of a traceback follow *line* in the log of its host."""
    number = line.text.removeprefix(RAISED)
    return int(number) if number != line.text and number.isdecimal() and len(number) < 6 else 0


def _anywhere(traceback: str) -> str:
    return re.sub(r"/host-\d+/", "/host/", traceback.strip())


def progress_text(works: Sequence[Progress]) -> str:
    """Return the progress of *works* in words; of several kinds, the sum of the one that began first."""
    works = tuple(works)
    kind = next((work.doing for work in works if work.seconds >= _WORTH_SHOWING), None)
    return _Sum([work for work in works if work.doing == kind]).text if kind is not None else ""


class _Sum(Progress):
    """The sum of several pieces of work of the same kind."""

    def __init__(self, parts: Sequence[Progress]) -> None:
        totals = [part.total for part in parts if part.total is not None]
        seconds = max(part.seconds for part in parts)
        super().__init__(parts[0].doing, sum(totals) if len(totals) == len(parts) else None)
        self.done = sum(part.done for part in parts)
        self._taken = seconds

    @property
    def seconds(self) -> float:
        """The seconds of the longest piece."""
        return self._taken


def progress_beside(
    report: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
) -> TrackProgress:
    """Return a function that tracks progress without a console: on a terminal, or else with *report*."""
    interactive = is_terminal(sys.stderr)
    return Console(
        sys.stdout, sys.stderr, interactive=interactive, clock=clock, report=report
    ).progress


def log_printer() -> LogPrinter:
    """Return a printer of a log on this process's streams, for a handle without a console."""
    return LogPrinter(sys.stdout, sys.stderr, write=_write)


def is_terminal(stream: Any) -> bool:
    """Return whether *stream* is a terminal; False if it is closed or has no `isatty`."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def write_line(stream: TextIO | None, text: str) -> None:
    """Write *text* as a line and flush; characters that *stream* cannot encode are escaped."""
    if stream is None:  # pythonw and some daemons have no streams
        return
    _write(stream, f"{text}\n")
    stream.flush()


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # A log may hold characters that this terminal's encoding lacks.
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


class _Harmless:
    """A stream whose errors are ignored: printing about a job must not end the job.

    Its reader may be gone, its disk full, its encoding limited.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(Exception):
            if self._stream is not None:
                _write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        with suppress(Exception):
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
