"""The log of a build, read from the bucket while it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kinetic_payload.errors import ObjectNotFoundError, StoreError
from kinetic_payload.layout import build_log
from kinetic_payload.stores.outages import OutageLimit, limited
from kinetic_payload.stores.store import Store

_PIECE: Final = 1024 * 1024
"""The most bytes of one request."""
_LIMIT: Final = 5.0
"""Seconds for which reading is retried. The next call continues where this one stopped."""


class BuildLog:
    """The log of one build; each line is passed to *line* once, in order.

    A log that cannot be read does not fail the build: `problem` says why.
    """

    def __init__(self, store: Store, build_id: str, line: Callable[[str], None]) -> None:
        self.problem: str | None = None
        """Why the log could not be read the last time; None: it could."""
        self._store = store
        self._name = build_log(build_id)
        self._line = line
        self._read = 0
        self._rest = b""

    def follow(self) -> None:
        """Pass on the lines that were written since the last call."""
        while data := self._next():
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._line(line.decode(errors="replace").rstrip("\r"))
            if len(data) < _PIECE:
                return

    def finish(self) -> None:
        """Pass on the rest, with a last line that is not complete. The build has ended: so has its log."""
        before = -1
        while before != self._read:
            before = self._read
            self.follow()
        rest, self._rest = self._rest, b""
        if rest:
            self._line(rest.decode(errors="replace"))

    def _next(self) -> bytes:
        try:
            with limited(OutageLimit(_LIMIT)):
                data = self._store.read(self._name, start=self._read, end=self._read + _PIECE)
        except ObjectNotFoundError:
            return b""  # It is written after a few seconds.
        except StoreError as error:
            self.problem = error.message
            return b""
        self.problem = None
        return data
