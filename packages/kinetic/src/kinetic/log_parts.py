"""Parts of lines of a log: join them, or print them as they come, each on the stream where the job wrote it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine

LONGEST_LINE: Final = 1 << 20
"""Bytes after which a line is cut: a progress bar may never end its line."""


class Joiner:
    """Joins the parts of lines that were split because the other stream wrote, or for a wait.

    Of a line that overwrites itself, such as a progress bar, the last state is left, as on a terminal.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[int, int, str], LogLine] = {}

    def add(self, line: LogLine) -> LogLine | None:
        """Return the line that *line* ends; None if it goes on."""
        if line.end and not self._begun:
            return _finished(line) if "\r" in line.text else line
        key = line.attempt, line.host, line.stream
        if before := self._begun.pop(key, None):
            line = replace(line, text=before.text + line.text)
        if line.end or len(line.text) > LONGEST_LINE:
            return _finished(line)
        # Of a bar, only the last state is kept: it may not end for hours.
        begin = line.text.rstrip("\r").rfind("\r")
        self._begun[key] = replace(line, text=line.text[max(begin, 0) :])
        return None

    def holds(self, line: LogLine) -> bool:
        """Return whether the beginning of *line* is here."""
        return (line.attempt, line.host, line.stream) in self._begun

    def close(self, before: float = inf) -> list[LogLine]:
        """Return the lines of attempts *before* that one which have not ended."""
        keys = [key for key in self._begun if key[0] < before]
        return [_finished(self._begun.pop(key)) for key in keys]


def _finished(line: LogLine) -> LogLine:
    return replace(line, text=line.text.rstrip("\r").rpartition("\r")[2], end="\n")


def joined(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Iterate over *lines* as they were before the runner split them."""
    joiner = Joiner()
    for line in lines:
        yield from joiner.close(line.attempt)
        if whole := joiner.add(line):
            yield whole
    yield from joiner.close()


class LogPrinter:
    """Prints the log of a job. A stream may be None, as in daemons.

    Parts of a line are printed as they come, so that a progress bar moves on a terminal. A file gets only its last state. Of
    several hosts, and with a prefix, whole lines are printed, because parts would mix.
    """

    def __init__(
        self,
        stdout: TextIO | None,
        stderr: TextIO | None,
        *,
        write: Callable[[TextIO, str], object],
        flush: bool = True,
    ) -> None:
        self._streams: Final = {"stdout": stdout, "stderr": stderr}
        self._write = write
        self._flush = flush
        self._joiner = Joiner()
        self._unfinished: list[TextIO] = []
        """The streams on which the last line has no end."""

    def line(self, line: LogLine, prefix: str = "") -> None:
        """Print *line*, or a part of one."""
        stream = self._streams[line.stream]
        if stream is None:
            return
        parts = line.hosts == 1 and not prefix and ("\r" not in line.text or _moves(stream))
        if not parts or self._joiner.holds(line):
            whole = self._joiner.add(line)
            if whole is None:
                return
            line = whole
        if not line.end and stream not in self._unfinished:
            self._unfinished.append(stream)
        elif line.end and stream in self._unfinished:
            self._unfinished.remove(stream)
        if stream is not self._streams["stdout"] and (stdout := self._streams["stdout"]):
            stdout.flush()
        self._write(stream, f"{prefix}{line.shown}{line.end}")
        if self._flush:
            stream.flush()

    def make_room(self) -> None:
        """End the line that other text on stderr would continue; what a file gets of stdout stays as it is."""
        for stream in list(self._unfinished):
            if stream is not self._streams["stdout"] or _moves(stream):
                self._unfinished.remove(stream)
                self._write(stream, "\n")
                stream.flush()

    def close(self) -> None:
        """Print what is left, and end unfinished lines."""
        for line in self._joiner.close():
            self.line(line)
        for stream in self._unfinished:
            self._write(stream, "\n")
            stream.flush()
        self._unfinished.clear()


def _moves(stream: TextIO) -> bool:
    """Return whether a line may overwrite itself on *stream*: on a terminal, or in a notebook."""
    try:
        return stream.isatty() or "get_ipython" in vars(builtins)
    except (AttributeError, ValueError):
        return False
