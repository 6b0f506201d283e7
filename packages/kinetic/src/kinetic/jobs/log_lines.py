"""Lines of a job's output: split, joined, cut if they are too long, interleaved between hosts."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO, Final, Literal

from kinetic.backends.backend import LogLine
from kinetic.log_parts import LONGEST_LINE
from kinetic_payload.layout import MARK, STDERR_MARK

_LONGEST_IN_TAIL: Final = 4 * LONGEST_LINE
"""Bytes of a line after which a tail stops searching for its beginning."""

_CUT: Final = "[kinetic] (The beginning of this long line, and what was before it, is left out.) "


def parsed(text: str, host: int = 0, attempt: int = 1) -> LogLine:
    """Return the line that *text* is, as the runner writes it; see `layout.MARK`. Logs of earlier runners have no marks."""
    if MARK not in text:
        return LogLine(text.removesuffix("\r"), host, attempt)
    stream: Literal["stdout", "stderr"] = "stderr" if text.startswith(STDERR_MARK) else "stdout"
    text = text.removeprefix(STDERR_MARK)
    if (len(text) - len(text.rstrip(MARK))) % 2:
        text = text[:-1].replace(MARK * 2, MARK)
        return LogLine(text, host, attempt, stream=stream, end="")
    text = text.replace(MARK * 2, MARK).removesuffix("\r")
    return LogLine(text, host, attempt, stream=stream)


def whole_lines(stream: BinaryIO, host: int, attempt: int) -> Iterator[LogLine]:
    """Iterate over the lines of *stream*, the log of *host*."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    mark = ""
    while data := stream.readline(LONGEST_LINE):
        whole = len(data) < LONGEST_LINE or data.endswith(b"\n")
        text = decoder.decode(data, final=whole).removesuffix("\n")
        line = parsed(mark + text, host, attempt)
        mark = STDERR_MARK if line.stream == "stderr" and not whole else ""
        yield line


def interleaved(parts: Iterable[Iterator[LogLine]]) -> Iterator[LogLine]:
    """Iterate over the lines of several hosts in turn: hosts of one program print similar lines."""
    waiting = list(parts)
    while waiting:
        for lines in list(waiting):
            line = next(lines, None)
            if line is None:
                waiting.remove(lines)
            else:
                yield line


def last_lines(ends: Iterable[list[LogLine]], count: int) -> Iterator[LogLine]:
    """Interleave the last lines of several hosts, aligned at their ends; *count* in all."""
    reverse = interleaved([iter(lines[::-1]) for lines in ends])
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
            if block[at - 1 : at] == MARK.encode():
                continue  # The line goes on.
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


def with_note(lines: list[LogLine], *, cut: bool) -> list[LogLine]:
    """Return *lines*, with a note in the first one if its beginning was *cut* off."""
    return (
        [replace(lines[0], text=f"{_CUT}{lines[0].text}"), *lines[1:]] if cut and lines else lines
    )


def separator(attempt: int, newer: int, message: str = "") -> LogLine:
    """Return the line between the logs of two attempts; *message* is why the first one ended."""
    why = f": {message.rstrip('.')}" if message else ""
    text = f"[kinetic] Attempt {attempt} ended{why}. Attempt {newer} begins."
    return LogLine(text, 0, newer, stream="stderr")


class LineSplitter:
    """Splits the output of *host* into lines as it arrives."""

    def __init__(self, host: int, attempt: int) -> None:
        self._host = host
        self._attempt = attempt
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: list[str] = []
        """Parts of the unfinished line; joined once, because there may be many."""
        self._size = 0

    def feed(self, data: bytes) -> list[LogLine]:
        """Return the lines that *data* completes."""
        *lines, rest = self._decoder.decode(data).split("\n")
        if lines:
            lines[0] = self._take_unfinished() + lines[0]
        found = [parsed(line, self._host, self._attempt) for line in lines]
        self._pieces.append(rest)
        self._size += len(rest)
        if self._size > LONGEST_LINE:
            found += [line := parsed(self._take_unfinished(), self._host, self._attempt)]
            self._pieces = [STDERR_MARK] if line.stream == "stderr" else []
        return found

    def close(self) -> list[LogLine]:
        """Return the last line if nothing ended it."""
        rest = self._take_unfinished() + self._decoder.decode(b"", final=True)
        return [parsed(rest, self._host, self._attempt)] if rest not in ("", STDERR_MARK) else []

    def _take_unfinished(self) -> str:
        unfinished = "".join(self._pieces)
        self._pieces, self._size = [], 0
        return unfinished
