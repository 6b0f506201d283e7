"""(child) Requests to stop from the parent, which arrive also where native code has taken SIGTERM.

XLA takes it once `jax.distributed` has joined, to report preemptions to checkpoint libraries; Python's
handler is not called any more. So the parent writes a request into a pipe, and what finds it here calls
Python's handler of SIGTERM in the main thread: ours, or one of the user's. The parent also sends SIGURG,
whose handler looks into the pipe. Native code may take that signal as well, but not the pipe: where
SIGTERM is known to be taken, a thread waits for the request. Where user code had closed the pipe before that,
the handler looks for a file, which the parent makes as well.
"""

from __future__ import annotations

import os
import signal
from typing import Final

from kinetic_runner.child.streams import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_WAKE_EVERY: Final = 0.1
_WAKE_AT_MOST: Final = 50


class StopRequests:
    """The reading end *fd* of the pipe, and *file*; *heard* returns whether a stop has been handled."""

    def __init__(self, fd: int, file: str, heard: Callable[[], bool]) -> None:
        self._fd = fd
        self._file = file
        self._heard = heard
        self._pipe = identity(fd)
        self._process = os.getpid()
        self._watched = False
        """Whether a thread waits for the request, or the handler has found it."""

    def install(self) -> None:
        """Look for a request at each SIGURG, which does nothing in a process that does not handle it."""
        if self._pipe is not None:
            os.set_blocking(self._fd, False)
            signal.signal(signal.SIGURG, self)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGURG. Where SIGTERM is still Python's, the parent has sent that, too."""
        if self._watched or os.getpid() != self._process or not sigterm_is_native():
            return
        if self._read() or os.path.exists(self._file):  # noqa: PTH110 - light
            self._watched = True  # A file stays: it is one request, whoever sends SIGURG later.
            _call_handler()

    def watch(self) -> None:
        """Wait for a request in a thread, whatever happens to signals from now on."""
        import _thread

        if self._pipe is None or identity(self._fd) != self._pipe:
            return
        self._watched = True
        os.set_blocking(self._fd, True)
        _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        # A read that has begun is of the pipe, also if user code closes its number meanwhile.
        if self._read():
            _call_handler()
            self._wake()

    def _read(self) -> bytes:
        try:
            # The number may be that of a file of the user's by now.
            return os.read(self._fd, 1) if identity(self._fd) == self._pipe else b""
        except OSError:
            return b""

    def _wake(self) -> None:
        """Interrupt the system call that the main thread is in: Python calls handlers between them.

        Repeatedly, as a signal that comes just before a call does not interrupt it.
        """
        import threading

        main, pause = threading.main_thread().ident, threading.Event()
        for _ in range(_WAKE_AT_MOST):
            if self._heard() or main is None:
                return
            signal.pthread_kill(main, signal.SIGURG)
            pause.wait(_WAKE_EVERY)


def sigterm_is_native() -> bool:
    """Return whether native code handles SIGTERM in place of a handler of Python's."""
    if not callable(signal.getsignal(signal.SIGTERM)):
        return False
    try:
        import ctypes

        handler_of = ctypes.pythonapi.PyOS_getsig
        handler_of.restype = ctypes.c_void_p
        return bool(handler_of(signal.SIGTERM) != handler_of(signal.SIGURG))
    except (ImportError, AttributeError):
        return False


def _call_handler() -> None:
    import _thread

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        # Python's handler is called in the main thread, whichever handler the system knows.
        _thread.interrupt_main(signal.SIGTERM)
