"""Defer Ctrl-C and other signals that raise exceptions while an operation must not be cut in half."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

_RAISING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Signals whose handlers often raise an exception."""


class Uninterrupted:
    """Defer signals that arrive in the block until its end.

    Only the main thread is interrupted by signals; in other threads this does nothing. This is not a
    generator: one could be interrupted between its `yield` and the block, and its end would be left to
    the garbage collector.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._came: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _RAISING:
            handler = signal.getsignal(number)
            # A signal that is ignored stays ignored; a handler that is not Python's ends the process without
            # any `finally`.
            if callable(handler):
                self._before[number] = handler
                signal.signal(number, self._note)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        # Restore all handlers first: raising a signal may raise an exception.
        for number, handler in self._before.items():
            signal.signal(number, handler)
        for came in self._came:
            signal.raise_signal(came)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if number not in self._came:
            self._came.append(number)
