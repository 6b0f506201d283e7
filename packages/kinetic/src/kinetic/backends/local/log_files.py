"""Log files of a job's hosts, read as a whole, from their end, or while they grow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import BinaryIO, Final

from kinetic.backends.backend import LogLine
from kinetic.backends.local.supervisor.state import read_state
from kinetic.home.paths import JobFolder
from kinetic.jobs.log_lines import (
    LineSplitter,
    interleaved,
    last_lines,
    separator,
    tail_size,
    whole_lines,
    with_note,
)
from kinetic.log_parts import joined
from kinetic.waiting import poll_interval

_BLOCK: Final = 1 << 16
_LATEST: Final = 0.1
"""Seconds after which a reader sees what was written, at the latest."""


def latest_attempt(folder: JobFolder) -> int:
    """Return the number of the latest attempt, 1 if none has begun."""
    try:
        names = os.listdir(folder.path)  # noqa: PTH208
    except FileNotFoundError:
        return 1
    numbers = [name.removeprefix("attempt-") for name in names if name.startswith("attempt-")]
    return max((int(number) for number in numbers if number.isdigit()), default=1)


def read_lines(folder: JobFolder, hosts: int, *, tail: int | None = None) -> Iterator[LogLine]:
    """Iterate over the log of the latest attempt so far, or over its last *tail* lines."""
    attempt = latest_attempt(folder)
    with ExitStack() as stack:
        streams = []
        for host in range(hosts):
            try:
                stream = open(folder.log(attempt, host), "rb")  # noqa: PTH123, SIM115
            except FileNotFoundError:
                continue
            streams.append((host, stack.enter_context(stream)))
        if tail is None:
            yield from interleaved([whole_lines(stream, host, attempt) for host, stream in streams])
            return
        ends = []
        for host, stream in streams:
            cut = _seek_tail(stream, tail)
            lines = list(joined(whole_lines(stream, host, attempt)))
            ends.append(with_note(lines[-tail:] if tail > 0 else [], cut=cut))
        yield from last_lines(ends, tail)


def _backwards(stream: BinaryIO) -> Iterator[bytes]:
    position = stream.seek(0, os.SEEK_END)
    while position > 0:
        size = min(_BLOCK, position)
        position -= size
        stream.seek(position)
        yield stream.read(size)


def _seek_tail(stream: BinaryIO, count: int) -> bool:
    """Move *stream* to its last *count* lines; return whether their beginning is cut."""
    end = stream.seek(0, os.SEEK_END)
    size, cut = tail_size(_backwards(stream), count)
    stream.seek(max(0, end - size))
    return cut


class _GrowingLog:
    """The log of one host, read as it grows."""

    def __init__(self, host: int, attempt: int, path: str, tail: int | None) -> None:
        self._path = path
        self._tail = tail
        self._stream: BinaryIO | None = None
        self._cut = False
        self._lines = LineSplitter(host, attempt)

    def read(self) -> list[LogLine] | None:
        """Return the lines that the next block completes; None if there is no new block."""
        if self._stream is None:
            try:
                self._stream = open(self._path, "rb", buffering=0)  # noqa: PTH123, SIM115
            except FileNotFoundError:
                return None
            if self._tail is not None:
                self._cut = _seek_tail(self._stream, self._tail)
        data = self._stream.read(_BLOCK)
        return self._add_note(self._lines.feed(data)) if data else None

    def _add_note(self, lines: list[LogLine]) -> list[LogLine]:
        noted = with_note(lines, cut=self._cut)
        self._cut = self._cut and not lines
        return noted

    def close(self) -> list[LogLine]:
        """Stop reading; return the last line if it has no line end."""
        if self._stream is not None:
            self._stream.close()
        return self._add_note(self._lines.close())


def follow_lines(
    folder: JobFolder,
    hosts: int,
    *,
    tail: int | None,
    ended: Callable[[], bool],
    pause: Callable[[float], object],
) -> Iterator[LogLine]:
    """Iterate over the log from the latest attempt on, until *ended* returns True and all lines were read."""
    attempt = latest_attempt(folder)
    share = None if tail is None else -(-tail // hosts)
    while True:
        paths = [folder.log(attempt, host) for host in range(hosts)]
        logs = [_GrowingLog(host, attempt, path, share) for host, path in enumerate(paths)]
        try:
            newer = yield from _follow_attempt(folder, attempt, logs, ended, pause)
        finally:
            rest = [line for log in logs for line in log.close()]
        yield from rest
        if not newer:
            return
        state = read_state(folder.state)
        known = state["attempts"] if state else ()
        why = next((ended["message"] for ended in known if ended["number"] == attempt), "")
        yield separator(attempt, attempt + 1, why)
        attempt, share = attempt + 1, None


def _follow_attempt(
    folder: JobFolder,
    attempt: int,
    logs: list[_GrowingLog],
    ended: Callable[[], bool],
    pause: Callable[[float], object],
) -> Generator[LogLine, None, bool]:
    """Iterate over one attempt's log to its end; return whether another attempt follows."""
    quiet_since = time.monotonic()
    while True:
        # Checked before reading, so that all output from before the end is read. Checked in this order,
        # because another attempt may begin and end between the two checks.
        over = ended()
        newer = os.path.exists(folder.attempt(attempt + 1))  # noqa: PTH110
        over = over or newer
        quiet = True
        for log in logs:
            lines = log.read()
            quiet = quiet and lines is None
            yield from lines or ()
        if not quiet:
            quiet_since = time.monotonic()
        elif over:
            return newer
        else:
            pause(min(_LATEST, poll_interval(time.monotonic() - quiet_since)))
