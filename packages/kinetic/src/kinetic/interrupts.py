"""Defer Ctrl-C and other signals that raise exceptions, while an operation must not be interrupted."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any, Final

_RAISING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Signals whose handlers often raise an exception."""


class Uninterrupted:
    """Defer signals that arrive in the block until its end.

    Only the main thread is interrupted by signals; in other threads this does nothing. This is a class
    and not a generator function: a generator could be interrupted between its `yield` and the block, and
    only the garbage collector would then restore the handlers.
    """

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}
        self._deferred: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in _RAISING:
                handler = signal.getsignal(number)
                # Other signals raise no exception: they are ignored, or end the process without any
                # `finally`.
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._defer)
        except BaseException:
            # A signal that is not deferred yet. Without this, Ctrl-C would stay deferred.
            self._restore()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        """Restore all handlers, then raise the deferred signals; each may raise an exception."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        with ExitStack() as stack:
            for deferred in reversed(self._deferred):
                stack.callback(signal.raise_signal, deferred)

    def _defer(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if number not in self._deferred:
            self._deferred.append(number)
