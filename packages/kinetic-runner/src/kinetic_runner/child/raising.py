"""(child) Raise from a signal handler only where that is safe, and again where it was lost.

Native modules that are being loaded often crash, or end the process, when what they import raises. And Python
drops what is raised in callbacks of the garbage collector (JAX has one) and in `__del__`.
"""

from __future__ import annotations

import signal
import sys
from importlib.machinery import ExtensionFileLoader
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, Final

_LOADING: Final = (
    ExtensionFileLoader.create_module.__code__,
    ExtensionFileLoader.exec_module.__code__,
)
_AT_MOST: Final = 2.0
"""Seconds for which to wait for native modules: a compiled program is one that never ends to load."""
_PAUSE: Final = 0.01


class Raising:
    """Raises *kind* in the main thread once; *wanted* returns whether to go on trying."""

    def __init__(self, kind: type[BaseException], wanted: Callable[[], bool]) -> None:
        self._kind = kind
        self._wanted = wanted
        self._raised = False
        self._until: float | None = None
        self._before = sys.unraisablehook

    def __call__(self, frame: FrameType | None) -> None:
        """Raise, now or soon; for a handler of SIGTERM that is in *frame*."""
        if self._raised:
            return
        first = self._until is None
        if self._until is None:
            self._until = monotonic() + _AT_MOST
            self._before, sys.unraisablehook = sys.unraisablehook, self._dropped
        if _loads_native_code(frame) and monotonic() < self._until:
            if first:  # Otherwise a thread is at it, which calls this.
                self._try_again()
            return
        self._raised = True
        raise self._kind

    def _dropped(self, unraisable: Any) -> None:
        if unraisable.exc_type is self._kind and self._wanted():
            self._raised = False
            self._try_again()
        else:
            self._before(unraisable)

    def _try_again(self) -> None:
        import _thread

        _thread.start_new_thread(self._call_again, ())

    def _call_again(self) -> None:
        import _thread
        import threading

        main, pause = threading.main_thread().ident, threading.Event()
        pause.wait(_PAUSE)
        while not self._raised and self._wanted() and main is not None:
            _thread.interrupt_main(signal.SIGTERM)
            signal.pthread_kill(main, signal.SIGURG)  # For a system call that it is in.
            pause.wait(_PAUSE)


def _loads_native_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _LOADING:
            return True
        frame = frame.f_back
    return False
