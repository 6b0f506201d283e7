"""(child) Stop the user's function: by SIGTERM, or by the parent's request where native code handles that.

XLA handles SIGTERM once `jax.distributed` has joined, to report preemptions to checkpoint libraries. Python's
handler is not called any more. So the parent writes a request into a pipe, and the main thread calls Python's
handler of SIGTERM (Kinetic's, or one of the user's). The parent also sends SIGURG, whose handler reads the
pipe. Native code may handle SIGURG as well, but it does not read the pipe: where SIGTERM is known to be
native, a thread waits for the request. If user code closed the pipe before that, the handler of SIGURG looks
for a file, which the parent creates as well.

The handler raises in the main thread only where that is safe, and raises again if the exception was lost. A
native module that is being loaded often crashes, or ends the process, if an import in it raises. And Python
drops exceptions that callbacks of the garbage collector (JAX has one) and `__del__` raise.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from time import monotonic
from typing import Final

from kinetic_payload.layout import EXIT_TERMINATED
from kinetic_runner.child.streams import identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

_LOADING: Final = (
    ExtensionFileLoader.create_module.__code__,
    ExtensionFileLoader.exec_module.__code__,
)
_LOADING_SECONDS: Final = 2.0
"""Seconds to wait until a native module is loaded. A compiled program runs while it is being loaded."""
_RAISE_EVERY: Final = 0.01
_WAKE_EVERY: Final = 0.1
_WAKE_AT_MOST: Final = 50


class Terminated(SystemExit):
    """Raised in the main thread by SIGTERM, so that `finally` blocks run during the grace."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)

    def __str__(self) -> str:
        return "Stopped by SIGTERM."


class Stopping:
    """The handler of SIGTERM, and whether a stop was requested.

    SIGTERM ends processes that user code forks, as in a plain script. Pools end their workers by it, and a
    process that is just being forked would lose an exception.
    """

    def __init__(self, requests: int = -1, file: str = "") -> None:
        self.stop_requested = False
        self.came_late = False
        """Whether the function had certainly ended before a stop could reach it."""
        self._raises = True
        self._process = os.getpid()
        self._masks: dict[int, set[signal.Signals | int]] = {}
        """Thread that is forking → its signal mask before that."""
        self._raised = False
        """Whether `Terminated` was raised, and Python has not dropped it."""
        self._try_until: float | None = None
        self._other_hook = sys.unraisablehook
        self.requests = StopRequests(requests, file, lambda: self.stop_requested)

    @classmethod
    def install(cls, requests: int | None = None, file: str = "") -> Stopping:
        """Handle SIGTERM from now on, until user code sets a handler of its own.

        *requests* is the pipe through which the parent requests a stop where native code handles SIGTERM.
        *file* is the file that the parent creates in case user code has closed the pipe.
        """
        stopping = cls(requests if requests is not None else -1, file)
        signal.signal(signal.SIGTERM, stopping)
        stopping.requests.install()
        os.register_at_fork(
            before=stopping._forks,
            after_in_parent=stopping._unmask,
            after_in_child=stopping._forked,
        )
        return stopping

    @property
    def _handles(self) -> bool:
        """Whether user code has set no handler of its own."""
        return signal.getsignal(signal.SIGTERM) is self

    def _forks(self) -> None:
        # Python forgets a signal that comes before a new process has begun; pools end their workers that early.
        # Handlers of the user's may raise, and exceptions are dropped here.
        if self._handles:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._masks[_thread.get_ident()] = mask

    def _unmask(self) -> None:
        if (mask := self._masks.pop(_thread.get_ident(), None)) is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _forked(self) -> None:
        if self._handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._unmask()
        self._masks.clear()

    def __call__(self, _signum: int, frame: FrameType | None) -> None:
        """Handle the signal. Only the first raises: clean-up must not be interrupted again."""
        # In a fork: `_forked` is not called yet, or a handler of the user's calls this one.
        if os.getpid() != self._process:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        self.stop_requested = True
        if not self._raises or self._raised:
            return
        first = self._try_until is None
        if self._try_until is None:
            self._try_until = monotonic() + _LOADING_SECONDS
            self._other_hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable
        if _loads_native_code(frame) and monotonic() < self._try_until:
            if first:  # Otherwise a thread already tries again.
                _thread.start_new_thread(self._try_again, ())
            return
        self._raised = True
        raise Terminated

    def _on_unraisable(self, unraisable: Any) -> None:
        if unraisable.exc_type is Terminated and self._raises and self._handles:
            self._raised = False
            _thread.start_new_thread(self._try_again, ())
        else:
            self._other_hook(unraisable)

    def _try_again(self) -> None:
        import threading

        main, pause = threading.main_thread().ident, threading.Event()
        pause.wait(_RAISE_EVERY)
        while not self._raised and self._raises and self._handles and main is not None:
            _thread.interrupt_main(signal.SIGTERM)
            signal.pthread_kill(main, signal.SIGURG)  # To interrupt a system call.
            pause.wait(_RAISE_EVERY)

    def check(self) -> None:
        """Raise `Terminated` if a stop was requested but user code dropped the exception.

        Imports and debuggers run code that drops exceptions.
        """
        if self.stop_requested and self._raises:
            raise Terminated

    def only_record(self) -> None:
        """From now on only record signals, so that they do not interrupt the report.

        A handler of the user's for SIGTERM is replaced. Handlers of other signals are still called, but their
        exceptions are dropped: a watchdog that was not switched off must not cost the value.
        """
        # A handler of the user's may have been called.
        maybe_handled = self.stop_requested or not self._handles
        self.came_late |= not maybe_handled and signal.SIGTERM not in signal.sigpending()
        self._raises = False
        signal.signal(signal.SIGTERM, self)
        for number in signal.valid_signals() - {signal.SIGTERM}:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Quiet):
                signal.signal(number, _Quiet(handler))


class _Quiet:
    """Calls a handler of the user's and drops its exceptions."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        with suppress(BaseException):
            self._handler(number, frame)


def _loads_native_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _LOADING:
            return True
        frame = frame.f_back
    return False


class StopRequests:
    """Reads requests from the pipe *fd*, or finds *file*; *handled* returns whether a stop was handled."""

    def __init__(self, fd: int, file: str, handled: Callable[[], bool]) -> None:
        self._fd = fd
        self._file = file
        self._handled = handled
        self._pipe = identity(fd)
        self._process = os.getpid()
        self._watched = False
        """Whether a thread waits for the request, or the handler has found it."""

    def install(self) -> None:
        """Look for a request at each SIGURG, which other processes ignore by default."""
        if self._pipe is not None:
            os.set_blocking(self._fd, False)
            signal.signal(signal.SIGURG, self)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGURG. Where Python still handles SIGTERM, do nothing: the parent sends SIGTERM as well."""
        if self._watched or os.getpid() != self._process or not sigterm_is_native():
            return
        if self._read() or os.path.exists(self._file):  # noqa: PTH110 - light
            # The file stays, but is only one request: another process may send SIGURG later.
            self._watched = True
            _call_handler()

    def watch(self) -> None:
        """Wait for a request in a thread, whatever happens to signals from now on."""
        if self._pipe is None or identity(self._fd) != self._pipe:
            return
        self._watched = True
        os.set_blocking(self._fd, True)
        _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        # A read that has begun stays on the pipe, even if user code closes the descriptor meanwhile.
        if not self._read():
            return
        _call_handler()
        import threading

        # Python calls handlers only between system calls of the main thread, so interrupt these. Do so repeatedly: a
        # signal that comes just before a system call does not interrupt it.
        main, pause = threading.main_thread().ident, threading.Event()
        for _ in range(_WAKE_AT_MOST):
            if self._handled() or main is None:
                return
            signal.pthread_kill(main, signal.SIGURG)
            pause.wait(_WAKE_EVERY)

    def _read(self) -> bytes:
        try:
            # By now the descriptor may belong to a file of user code.
            return os.read(self._fd, 1) if identity(self._fd) == self._pipe else b""
        except OSError:
            return b""


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
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        # Python's handler is called in the main thread, whichever handler the system knows.
        _thread.interrupt_main(signal.SIGTERM)
