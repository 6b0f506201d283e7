"""Put off Ctrl-C, and what else a signal raises, while something is half done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

_RAISING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Signals of which handlers like to raise something."""


class Uninterrupted:
    """A block at whose end the signals arrive that came within it.

    Only the main thread is ever interrupted; in another one this does nothing. Not a generator: between
    its `yield` and the block it could be interrupted, and its end be left to the garbage collector.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _RAISING:
            handler = signal.getsignal(number)
            # Ignored is ignored, and what is not Python's own ends the process without any `finally`.
            if callable(handler):
                self._before[number] = handler
                signal.signal(number, self._note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # The numbers are there before anything can be raised: each is raised once all are back.
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for came in self._came:
            signal.raise_signal(came)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if number not in self._came:
            self._came.append(number)
