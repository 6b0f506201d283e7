"""What a person sees while a call blocks: progress on stderr, the job's log on stdout."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, cast

from kinetic_payload.printable import printable
from kinetic_payload.progress import Progress, duration_text, size_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kinetic.backends.backend import LogLine
    from kinetic_payload.progress import Advance, TrackProgress

_WORTH_SHOWING: Final = 1.0
"""Seconds that work takes before anybody wants to know how far it is."""
_TURN: Final = 2.0
"""Seconds that one of several kinds of work is shown before the next."""


class Console:
    """Says what a blocking call does. May be used from any thread.

    Nothing that goes wrong with stderr is raised: whoever says something is about more important
    things. That stdout cannot be written is raised by `line` alone.

    On a terminal the running phase is shown with the time it has taken, until the log begins;
    elsewhere every phase is a line. Moving bytes for long is shown in its place with how far it is;
    elsewhere it is a line, once. Text is never read as markup.
    """

    def __init__(
        self,
        stdout: TextIO,
        stderr: TextIO,
        *,
        interactive: bool,
        color: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interactive = interactive
        self._stdout = stdout
        self._stderr = _Harmless(stderr)
        self._color = color
        self._clock = clock
        self._lock = threading.RLock()
        self._phase = ""
        self._began = 0.0
        self._live: Any = None
        self._works: list[Progress] = []
        self._told: set[str] = set()
        self._lent = False
        """Whether the display is there for bytes on their way alone, after the log had taken over."""

    @classmethod
    def of_this_process(cls, *, color: bool = True) -> Console:
        """Return a console on this process's streams; interactive if progress goes to a terminal."""
        return cls(sys.stdout, sys.stderr, interactive=is_terminal(sys.stderr), color=color)

    def phase(self, text: str) -> None:
        """Say what happens now."""
        with self._lock:
            if text == self._phase:
                return
            self._phase, self._began = text, self._clock()
            self._lent = False
            if self.interactive:
                self._show()
            else:
                self._say(f"kinetic: {text}")

    def note(self, text: str) -> None:
        """Say something that stays readable; its control characters are escaped."""
        with self._lock:
            shown, lent = self._live is not None, self._lent
            self._hide()
            for line in printable(text).splitlines() or [""]:
                self._say(f"kinetic: {line}")
            if shown:
                self._show()
                self._lent = lent

    @contextmanager
    def progress(self, doing: str, total: int | None) -> Iterator[Advance]:
        """Show how far work such as `uploading data` is, where it takes more than a moment."""
        work = Progress(doing, total, clock=self._clock)
        shown = False

        def advance(size: int) -> None:
            nonlocal shown
            work.advance(size)
            if not shown and work.seconds >= _WORTH_SHOWING:
                shown = True
                self._show_work(work)

        self._works.append(work)
        try:
            yield advance
        finally:
            with self._lock:
                self._works.remove(work)
                if self._lent and not self._works:
                    self._hide()

    def text(self, text: str) -> None:
        """Say something to be copied: as it is."""
        with self._lock:
            self._hide()
            self._say(text)

    def line(self, line: LogLine) -> None:
        """Print a line of the job's log on stdout. On a terminal the log takes over from progress.

        Raises:
            OSError: Nobody reads stdout any more, or its disk is full.
        """
        with self._lock:
            self._hide()
            write_line(self._stdout, line.shown)

    def done(self) -> None:
        """Take away what only showed that something was going on."""
        with self._lock:
            self._hide()
            self._phase = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.done()

    def _say(self, line: str) -> None:
        self._stderr.write(f"{line}\n")
        self._stderr.flush()

    def _show_work(self, work: Progress) -> None:
        with self._lock:
            if work not in self._works:
                return  # It ended meanwhile, and would take nothing away again.
            if self.interactive:
                if self._live is None:
                    self._lent = True
                self._show()
            elif work.doing not in self._told:
                self._told.add(work.doing)
                amount = "" if work.total is None else f" ({size_text(work.total)})"
                self._say(f"kinetic: {work.doing}{amount}")

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
            # The process's own streams stay as they are: user code may be writing to them.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _hide(self) -> None:
        live, self._live, self._lent = self._live, None, False
        if live is not None:
            live.stop()

    def _progress(self) -> RenderableType:
        from rich.text import Text

        # Read without our lock, which whoever stops the display holds while it waits for this.
        phase, began, now = self._phase, self._began, self._clock()
        shown = Text(no_wrap=True, overflow="ellipsis")
        shown.append("kinetic ", style="bold")
        moving = progress_text(self._works, int(now / _TURN))
        if moving:
            shown.append(moving)
        else:
            shown.append(f"{phase} ")
            shown.append(duration_text(now - began), style="dim")
        return shown


def progress_text(works: Sequence[Progress], turn: int) -> str:
    """Return how far *works* are in words: what is the same is summed up, what is not takes turns."""
    kinds: dict[str, list[Progress]] = {}
    for work in tuple(works):
        kinds.setdefault(work.doing, []).append(work)
    long = [kind for kind in kinds.values() if max(w.seconds for w in kind) >= _WORTH_SHOWING]
    if not long:
        return ""
    kind = long[turn % len(long)]
    return kind[0].text if len(kind) == 1 else _Sum(kind).text


class _Sum(Progress):
    """Several pieces of the same work as one."""

    def __init__(self, parts: Sequence[Progress]) -> None:
        totals = [part.total for part in parts if part.total is not None]
        seconds = max(part.seconds for part in parts)
        super().__init__(parts[0].doing, sum(totals) if len(totals) == len(parts) else None)
        self.done = sum(part.done for part in parts)
        self._taken = seconds

    @property
    def seconds(self) -> float:
        """As long as the longest has taken."""
        return self._taken


def progress_beside(
    say: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
) -> TrackProgress:
    """Return what shows progress where no console was given: on a terminal, or else by *say*."""
    if is_terminal(sys.stderr):
        return Console.of_this_process().progress

    @contextmanager
    def begin(doing: str, total: int | None) -> Iterator[Advance]:
        work, told = Progress(doing, total, clock=clock), False

        def advance(size: int) -> None:
            nonlocal told
            work.advance(size)
            if not told and work.seconds >= _WORTH_SHOWING:
                told = True
                say(doing if total is None else f"{doing} ({size_text(total)})")

        yield advance

    return begin


def is_terminal(stream: Any) -> bool:
    """Return whether *stream* is a terminal that can redraw a line; False for what cannot say."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def write_line(stream: TextIO | None, text: str) -> None:
    """Write *text* as a line, at once, with escapes for what *stream* cannot encode."""
    if stream is None:  # pythonw and some daemons have no streams
        return
    _write(stream, f"{text}\n")
    stream.flush()


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # A log may hold what this terminal's encoding has not.
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


class _Harmless:
    """A stream whose failures end nothing: what is said about a job must not cost the job.

    Whoever reads it may be gone, its disk full, its encoding poor.
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
