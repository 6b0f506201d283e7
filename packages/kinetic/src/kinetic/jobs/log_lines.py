"""Lines of a job's output: split, cut if they are too long, interleaved between hosts."""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final

from kinetic.backends.backend import LogLine

LONGEST_LINE: Final = 1 << 20
"""Bytes after which a line is cut: a progress bar may never end its line."""

_LONGEST_IN_TAIL: Final = 4 * LONGEST_LINE
"""Bytes of a line after which a tail stops searching for its beginning."""

_CUT: Final = "[kinetic] (The beginning of this long line, and what was before it, is left out.) "


def whole_lines(stream: BinaryIO) -> Iterator[str]:
    """Iterate over the lines of *stream*, without their ends."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while line := stream.readline(LONGEST_LINE):
        whole = len(line) < LONGEST_LINE or line.endswith(b"\n")
        yield _clean(decoder.decode(line, final=whole))


def interleaved(parts: Iterable[tuple[int, Iterator[str]]], attempt: int) -> Iterator[LogLine]:
    """Iterate over the lines of several hosts in turn: hosts of one program print similar lines."""
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
    """Return how many of the last bytes hold the last *count* lines, and whether their beginning is cut.

    *blocks* begins with the last block of the log; no more blocks are read than needed. A line longer
    than `LONGEST_LINE` is cut at its beginning, and the tail begins there.
    """
    if count <= 0:
        return 0, False
    size = line_end = 0  # Both are counted from the end.
    for block in blocks:
        # A line end at the end of the log does not begin another line.
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


def with_note(lines: list[str], *, cut: bool) -> list[str]:
    """Return *lines*, with a note in the first one if its beginning was *cut* off."""
    return [f"{_CUT}{lines[0]}", *lines[1:]] if cut and lines else lines


def separator(attempt: int, newer: int, message: str = "") -> LogLine:
    """Return the line between the logs of two attempts; *message* is why the first one ended."""
    why = f": {message.rstrip('.')}" if message else ""
    return LogLine(f"[kinetic] Attempt {attempt} ended{why}. Attempt {newer} begins.", 0, newer)


BAR_SECONDS: Final = 1.0
"""Seconds between two states of a progress bar, which may not end its line for hours."""


class LineSplitter:
    """Splits a host's output into lines as it arrives."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown_at = clock()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        """Parts of the unfinished line; joined once, because there may be many."""
        self._size = 0

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that *data* completes."""
        *lines, rest = self._decoder.decode(data).split("\n")
        if lines:
            lines[0] = self._take_unfinished() + lines[0]
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > LONGEST_LINE:
            lines.append(self._take_unfinished())
        if lines:
            self._shown_at = self._clock()
        return [_clean(line) for line in lines]

    def bar(self) -> list[str]:
        """Return the last state of a line that overwrites itself, if it is time to show one.

        Earlier states are left out, as on a terminal; the stored log has them all.
        """
        now = self._clock()
        if now - self._shown_at < BAR_SECONDS or not any("\r" in piece for piece in self._pieces):
            return []
        unfinished = self._take_unfinished()
        states, _, rest = unfinished.rpartition("\r")
        state = states.rpartition("\r")[2]
        self._pieces = [rest if state else unfinished]
        self._size = len(self._pieces[0])
        if not state:
            return []
        self._shown_at = now
        return [state]

    def close(self) -> list[str]:
        """Return the last line if nothing ended it."""
        rest = self._take_unfinished() + self._decoder.decode(b"", final=True)
        return [_clean(rest)] if rest else []

    def _take_unfinished(self) -> str:
        unfinished = "".join(self._pieces)
        self._pieces, self._size = [], 0
        return unfinished


def _clean(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")
