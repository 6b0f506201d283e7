"""The live log: files that the hosts of a job write, read while they grow or from their end."""

from __future__ import annotations

import codecs
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import BinaryIO, Final

from kinetic.backends import LogLine
from kinetic.local.paths import JobFolder
from kinetic.local.state import read_state
from kinetic.waiting import poll_interval

_BLOCK: Final = 1 << 16
LONGEST_LINE: Final = 1 << 20
"""Bytes after which a line is cut: a progress bar may never end one."""
_LONGEST_IN_TAIL: Final = 4 * LONGEST_LINE
"""Bytes of a line, before which a tail does not look for its beginning: it may be anywhere."""
_CUT: Final = "[kinetic] (The beginning of this long line, and what was before it, is left out.) "


def latest_attempt(folder: JobFolder) -> int:
    """Return the number of the latest attempt, 1 if none has begun."""
    try:
        names = os.listdir(folder.path)  # noqa: PTH208
    except FileNotFoundError:
        return 1
    numbers = [name.removeprefix("attempt-") for name in names if name.startswith("attempt-")]
    return max((int(number) for number in numbers if number.isdigit()), default=1)


def read_lines(folder: JobFolder, hosts: int, *, tail: int | None = None) -> Iterator[LogLine]:
    """Iterate over what is there of the latest attempt, or over its last *tail* lines."""
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
            parts = [(host, whole_lines(stream)) for host, stream in streams]
            yield from interleaved(parts, attempt)
            return
        ends = []
        for host, stream in streams:
            cut = _seek_tail(stream, tail)
            lines = list(whole_lines(stream))[-tail:] if tail > 0 else []
            ends.append((host, with_note(lines, cut=cut)))
        yield from last_lines(ends, attempt, tail)


def whole_lines(stream: BinaryIO) -> Iterator[str]:
    """Iterate over the lines of *stream*, without their ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while line := stream.readline(LONGEST_LINE):
        whole = len(line) < LONGEST_LINE or line.endswith(b"\n")
        yield _clean(decoder.decode(line, final=whole))


def interleaved(parts: Iterable[tuple[int, Iterator[str]]], attempt: int) -> Iterator[LogLine]:
    """Iterate over the lines of several hosts in turn: hosts of one program say the same things."""
    waiting = list(parts)
    while waiting:
        for part in list(waiting):
            host, lines = part
            text = next(lines, None)
            if text is None:
                waiting.remove(part)
            else:
                yield LogLine(text, host, attempt)


def last_lines(
    ends: Iterable[tuple[int, list[str]]], attempt: int, count: int
) -> Iterator[LogLine]:
    """Interleave the last lines of several hosts, aligned at their ends; *count* in all."""
    reverse = interleaved([(host, iter(lines[::-1])) for host, lines in ends], attempt)
    found = [line for line, _ in zip(reverse, range(count), strict=False)]
    # Within a round the lowest host goes first, so rounds are turned around as a whole.
    rounds: list[list[LogLine]] = []
    for line in found:
        if not rounds or line.host <= rounds[-1][-1].host:
            rounds.append([])
        rounds[-1].append(line)
    for group in reversed(rounds):
        yield from group


def tail_size(blocks: Iterable[bytes], count: int) -> tuple[int, bool]:
    """Return how many of the last bytes hold the last *count* lines, and whether these lack a part.

    *blocks* are what there is, from the last one back; no more of them is taken than need be. A line
    longer than `LONGEST_LINE` is cut at its beginning, and nothing before it belongs to the tail.
    """
    if count <= 0:
        return 0, False
    size = line_end = 0  # Both are counted from the end.
    for block in blocks:
        # What ends the very last line begins none.
        at = len(block) - (size == 0 and block.endswith(b"\n"))
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            begin = size + len(block) - at - 1
            if begin - line_end > _LONGEST_IN_TAIL:
                break
            count -= 1
            if count == 0:
                return begin, False
            line_end = begin
        size += len(block)
        if at >= 0 or size - line_end > _LONGEST_IN_TAIL:
            return line_end + _LONGEST_IN_TAIL, True
    return size, False


def _backwards(stream: BinaryIO) -> Iterator[bytes]:
    position = stream.seek(0, os.SEEK_END)
    while position > 0:
        size = min(_BLOCK, position)
        position -= size
        stream.seek(position)
        yield stream.read(size)


def _seek_tail(stream: BinaryIO, count: int) -> bool:
    """Let *stream* go on where its last *count* lines begin; return whether these lack a part."""
    end = stream.seek(0, os.SEEK_END)
    size, cut = tail_size(_backwards(stream), count)
    stream.seek(max(0, end - size))
    return cut


def with_note(lines: list[str], *, cut: bool) -> list[str]:
    """Return *lines*, the first of which says so if its beginning was *cut* off."""
    return [f"{_CUT}{lines[0]}", *lines[1:]] if cut and lines else lines


BAR_SECONDS: Final = 1.0
"""How often a follower sees where a progress bar is, which may not end its line for hours."""


class LineSplitter:
    """Makes lines of a host's output as it comes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = clock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        """Of the line that is not at its end yet; joined once, however many there come to be."""
        self._size = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that *data* completes."""
        *lines, rest = self._decoder.decode(data).split("\n")
        if lines:
            lines[0] = self._taken() + lines[0]
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > LONGEST_LINE:
            lines.append(self._taken())
        if lines:
            self._said_at = self._clock()
        return [_clean(line) for line in lines]

    def bar(self) -> list[str]:
        """Return the last state of a line that writes over itself, if it is time to show one.

        The states before it are left out, as on a terminal; the log as it is read later has them all.
        """
        now = self._clock()
        if now - self._said_at < BAR_SECONDS or not any("\r" in piece for piece in self._pieces):
            return []
        unfinished = self._taken()
        states, _, rest = unfinished.rpartition("\r")
        state = states.rpartition("\r")[2]
        self._pieces = [rest if state else unfinished]
        self._size = len(self._pieces[0])
        if not state:
            return []
        self._said_at = now
        return [state]

    def close(self) -> list[str]:
        """Return the last line if nothing ended it."""
        rest = self._taken() + self._decoder.decode(b"", final=True)
        return [_clean(rest)] if rest else []

    def _taken(self) -> str:
        unfinished = "".join(self._pieces)
        self._pieces, self._size = [], 0
        return unfinished


class _Growing:
    """The log of one host, read as it grows."""

    def __init__(self, host: int, path: str, tail: int | None, clock: Callable[[], float]) -> None:
        self.host = host
        self._path = path
        self._tail = tail
        self._stream: BinaryIO | None = None
        self._cut = False
        self._lines = LineSplitter(clock)

    def read(self) -> list[str] | None:
        """Return the lines that one more block completes; None where nothing is there now."""
        if self._stream is None:
            try:
                self._stream = open(self._path, "rb", buffering=0)  # noqa: PTH123, SIM115
            except FileNotFoundError:
                return None
            if self._tail is not None:
                self._cut = _seek_tail(self._stream, self._tail)
        data = self._stream.read(_BLOCK)
        if not data:
            return self._noted(self._lines.bar()) or None
        return self._noted([*self._lines.feed(data), *self._lines.bar()])

    def _noted(self, lines: list[str]) -> list[str]:
        noted = with_note(lines, cut=self._cut)
        self._cut = self._cut and not lines
        return noted

    def close(self) -> list[str]:
        """Stop reading; return the last line if nothing ended it."""
        if self._stream is not None:
            self._stream.close()
        return self._noted(self._lines.close())


def follow_lines(
    folder: JobFolder,
    hosts: int,
    *,
    tail: int | None,
    ended: Callable[[], bool],
    pause: Callable[[float], object],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[LogLine]:
    """Iterate over the log from the latest attempt on, until *ended* and everything was read."""
    attempt = latest_attempt(folder)
    share = None if tail is None else -(-tail // hosts)
    while True:
        logs = [_Growing(host, folder.log(attempt, host), share, clock) for host in range(hosts)]
        try:
            newer = yield from _follow_attempt(folder, attempt, logs, ended, pause)
        finally:
            rest = [(log.host, log.close()) for log in logs]
        yield from (LogLine(text, host, attempt) for host, texts in rest for text in texts)
        if not newer:
            return
        yield LogLine(_turn(folder, attempt), 0, attempt + 1)
        attempt, share = attempt + 1, None


def _follow_attempt(
    folder: JobFolder,
    attempt: int,
    logs: list[_Growing],
    ended: Callable[[], bool],
    pause: Callable[[float], object],
) -> Generator[LogLine, None, bool]:
    """Iterate over one attempt's log to its end; return whether another attempt follows."""
    quiet_since = time.monotonic()
    while True:
        # Asked before reading: what was written before the end is read after it. And in this order:
        # another attempt may begin and end between the two questions.
        over = ended()
        newer = os.path.exists(folder.attempt(attempt + 1))  # noqa: PTH110
        over = over or newer
        quiet = True
        for log in logs:
            lines = log.read()
            quiet = quiet and lines is None
            yield from (LogLine(text, log.host, attempt) for text in lines or ())
        if not quiet:
            quiet_since = time.monotonic()
        elif over:
            return newer
        else:
            pause(poll_interval(time.monotonic() - quiet_since))


def _turn(folder: JobFolder, attempt: int) -> str:
    state = read_state(folder.state)
    said = (
        [one["message"] for one in state["attempts"] if one["number"] == attempt] if state else []
    )
    why = f": {said[0].rstrip('.')}" if said and said[0] else ""
    return f"[kinetic] Attempt {attempt} ended{why}. Attempt {attempt + 1} begins."


def _clean(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
