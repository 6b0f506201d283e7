"""Parts of lines of a log: join them, or print them as they come, each on the stream where the job wrote it."""

from __future__ import annotations

import builtins
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import inf
from threading import RLock, Timer
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine

LONGEST_LINE: Final = 1 << 20
"""Bytes after which a line is cut: a progress bar may never end its line."""

_LOOK: Final = 0.25
"""Seconds between two looks at the lines that wait for those of other hosts: each waits for two looks at most."""
_MOST_WAITING: Final = 10_000
"""Lines that wait at the same time."""


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
    """Prints the log of a job. May be used from any thread. A stream may be None, as in daemons.

    Parts of a line are printed as they come, so that a progress bar moves on a terminal. A file gets only its last state. Of
    several hosts, and with a prefix, whole lines are printed, because parts would mix.

    Unless *all_hosts* are wanted, a line that is equal on all hosts is printed once, with their number. A line waits for the
    other hosts: half a second if lines are flushed, which somebody reads as they come; otherwise until the log ends.
    """

    def __init__(
        self,
        stdout: TextIO | None,
        stderr: TextIO | None,
        *,
        write: Callable[[TextIO, str], object],
        flush: bool = True,
        all_hosts: bool = False,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._streams: Final = {"stdout": stdout, "stderr": stderr}
        self._write = write
        self._flush = flush
        self._all_hosts = all_hosts
        self._lock = lock or RLock()
        self._joiner = Joiner()
        self._unfinished: list[TextIO] = []
        """The streams on which the last line has no end."""
        self._waiting: dict[int, deque[tuple[float, LogLine, str]]] = {}
        """By host, its lines that wait: when they came, and their prefixes. There is no empty queue."""
        self._found: dict[tuple[str, str], Counter[int]] = {}
        """By stream and text of a line that waits, how often each host has it."""
        self._timer: Timer | None = None

    def line(self, line: LogLine, prefix: str = "") -> None:
        """Print *line*, or a part of one; of several hosts, at once or when it has waited."""
        stream = self._streams[line.stream]
        if stream is None:
            return
        with self._lock:
            parts = line.hosts == 1 and not prefix and ("\r" not in line.text or _moves(stream))
            if not parts or self._joiner.holds(line):
                whole = self._joiner.add(line)
                if whole is None:
                    return
                line = whole
            if line.hosts == 1 or self._all_hosts:
                self._print(line, f"{prefix}{line.shown}")
                return
            if any(queue[0][1].attempt < line.attempt for queue in self._waiting.values()):
                self._print_waiting(inf)
            now = time.monotonic()
            self._waiting.setdefault(line.host, deque()).append((now, line, prefix))
            self._found.setdefault((line.stream, line.text), Counter())[line.host] += 1
            self._print_waiting(now - 2 * _LOOK if self._flush else -inf)
            self._look_later()

    def _look_later(self) -> None:
        if self._waiting and self._flush and self._timer is None:
            self._timer = Timer(_LOOK, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        # A line that cannot be printed here keeps waiting: the next call of `line` or `close` raises the error.
        with self._lock, suppress(OSError, ValueError):
            self._timer = None
            self._print_waiting(time.monotonic() - _LOOK)
            self._look_later()

    def _print_waiting(self, before: float) -> None:
        """Print the lines that came *before*, and those that need not wait for a line of another host.

        If the next lines of all hosts are equal, they are printed as one. If a host has the next line of another host further
        on, the other one has no line like those in between, so these are printed first.
        """
        while self._waiting:
            firsts = {host: queue[0] for host, queue in self._waiting.items()}
            texts = {(line.stream, line.text) for _, line, _ in firsts.values()}
            came, line, prefix = min(firsts.values(), key=lambda first: first[0])
            hosts, shown = list(firsts), f"[{line.hosts} hosts] {line.text}"
            if len(texts) > 1 or len(hosts) < line.hosts:
                found = Counter(host for text in texts for host in self._found[text])
                if behind := [firsts[host] for host, count in found.items() if count > 1]:
                    came, line, prefix = min(
                        behind,
                        key=lambda first: (
                            len(self._found[first[1].stream, first[1].text]),
                            first[0],
                        ),
                    )
                elif came >= before and sum(map(len, self._waiting.values())) <= _MOST_WAITING:
                    return
                hosts, shown = [line.host], line.shown
            self._print(line, f"{prefix}{shown}")
            key = line.stream, line.text
            for host in hosts:
                self._waiting[host].popleft()
                if not self._waiting[host]:
                    del self._waiting[host]
                self._found[key][host] -= 1
                if not self._found[key][host]:
                    del self._found[key][host]
            if not self._found[key]:
                del self._found[key]

    def _print(self, line: LogLine, shown: str) -> None:
        stream = self._streams[line.stream]
        assert stream is not None
        if not line.end and stream not in self._unfinished:
            self._unfinished.append(stream)
        elif line.end and stream in self._unfinished:
            self._unfinished.remove(stream)
        if stream is not self._streams["stdout"] and (stdout := self._streams["stdout"]):
            stdout.flush()
        self._write(stream, f"{shown}{line.end}")
        if self._flush:
            stream.flush()

    def make_room(self) -> None:
        """End the line that other text on stderr would continue; what a file gets of stdout stays as it is."""
        with self._lock:
            for stream in list(self._unfinished):
                if stream is not self._streams["stdout"] or _moves(stream):
                    self._unfinished.remove(stream)
                    self._write(stream, "\n")
                    stream.flush()

    def close(self) -> None:
        """Print what is left, and end unfinished lines."""
        with self._lock:
            for line in self._joiner.close():
                self.line(line)
            self._print_waiting(inf)
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
