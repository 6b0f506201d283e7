"""Merge the child's standard output and error into one log, in which each line shows its stream."""

from __future__ import annotations

import codecs
from time import monotonic
from typing import Final

from kinetic_payload.layout import MARK

_PIECE_SECONDS: Final = 0.05
"""Seconds after which what was written of a line is made a line of its own: Kubernetes shows whole lines only."""
_BAR_SECONDS: Final = 1.0
"""Seconds after which the same is done with a line that overwrites itself, a progress bar, although it goes on."""
_MARK: Final = MARK.encode()
_SPLIT: Final = _MARK + b"\n"


class MergedStreams:
    """Merges what is read from the streams; see `layout.MARK`. A stream is named by how its lines begin."""

    def __init__(self) -> None:
        self._current: str | None = None
        """The stream of the log's last line, if it has not ended."""
        self._split_at = 0.0
        self.unfinished: set[str] = set()
        """The streams whose last line has not ended."""
        self._begun: dict[str, bytes] = {}
        """By stream, the first bytes of a character, until the others are read: another stream must not come between."""

    @property
    def at_line_start(self) -> bool:
        """Whether the log's last line has ended."""
        return self._current is None

    @property
    def due_in(self) -> float | None:
        """Seconds until `split` has something to do."""
        return None if self._current is None else max(0.0, self._split_at - monotonic())

    def split(self) -> bytes:
        """Return the end of a line whose output has waited long enough for its own."""
        if self.due_in != 0.0:
            return b""
        self._current = None
        return _SPLIT

    def end(self) -> bytes:
        """Return the rest of the streams, after all their output."""
        return b"".join(
            self._merge(self._begun.pop(stream), stream) for stream in list(self._begun)
        )

    def add(self, data: bytes, stream: str) -> bytes:
        """Return what is written to the log for *data* of *stream*."""
        data = self._begun.pop(stream, b"") + data
        end = data[-3:]  # A character has at most four bytes.
        whole = len(data) - len(end) + codecs.utf_8_decode(end, "replace", False)[1]
        if whole < len(data):
            self._begun[stream] = data[whole:]
        return self._merge(data[:whole], stream)

    def _merge(self, data: bytes, stream: str) -> bytes:
        if not data:
            return b""
        mark, before = stream.encode(), b""
        data = data.replace(_MARK, _MARK * 2)
        if mark:
            data = data[:-1].replace(b"\n", b"\n" + mark) + data[-1:]
        if self._current not in (None, stream):
            self._current, before = None, _SPLIT
        begins = self._current is None
        if begins:
            before += mark
        if data.endswith(b"\n"):
            self._current = None
            self.unfinished.discard(stream)
        else:
            self._current = stream
            self.unfinished.add(stream)
            line = data[data.rfind(b"\n") + 1 :]
            due = monotonic() + (_BAR_SECONDS if b"\r" in line else _PIECE_SECONDS)
            is_new = begins or len(line) < len(data)
            self._split_at = due if is_new else min(due, self._split_at)
        return before + data
