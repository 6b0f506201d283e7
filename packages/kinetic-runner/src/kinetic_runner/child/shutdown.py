"""(child) End this process: shut Python down in bounded time, leave a fork, or start again with new packages."""

from __future__ import annotations

import os
import sys
from signal import SIG_BLOCK, SIGTERM, SIGURG, pthread_sigmask
from time import monotonic
from typing import Any, Final, NoReturn

from kinetic_runner.child.streams import flush, print_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from kinetic_runner.task import Task

RESTARTED: Final = "--task"
"""The argument of a restarted child that is followed by its task."""
STOP_SIGNALS: Final = {SIGTERM, SIGURG}

_HANDLERS_SHARE: Final = 0.5
"""Share of the time that is reserved for exit handlers while threads still run."""
_CLOSING_SHARE: Final = 0.1
"""Share of the time that is reserved for closing files."""
_FILE_SECONDS: Final = 1.0
"""Seconds after which one file no longer delays the others."""
_NAMES: Final = 10


def shut_down(seconds: float) -> None:
    """Join threads, run exit handlers, close files; meant to take at most *seconds*.

    Like Python, this waits for threads and then runs exit handlers. Unlike Python, it runs the handlers even
    if threads still run, and names those threads in the log. Exit handlers and flushing C's streams are not
    limited here: the parent limits them.
    """
    import atexit
    import threading

    began = monotonic()
    handlers_at = began + seconds * (1 - _HANDLERS_SHARE)
    # Executors end, and join, their threads in these handlers, without a time limit.
    handlers = list(reversed(getattr(threading, "_threading_atexits", ())))
    thread = _start_thread(lambda: [run() for run in handlers]) if handlers else None
    if thread is not None:
        thread.join(max(0.0, handlers_at - monotonic()))
    _join_threads(handlers_at)
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way to run them now
    left = _join_threads(began + seconds * (1 - _CLOSING_SHARE))
    if left:
        more = f" and {len(left) - _NAMES} more" if len(left) > _NAMES else ""
        names = ", ".join(left[:_NAMES]) + more
        _log(f"The function has ended, but not all of its threads; cut off: {names}.")
    _finish_files(began + seconds)
    flush()


def _start_thread(run: Callable[[], object]) -> threading.Thread | None:
    """Call *run* in a thread; return None if none can be started."""
    import threading

    thread = threading.Thread(target=run, name="kinetic-shutdown", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def _join_threads(until: float) -> list[str]:
    """Wait for all threads but daemons, also those that they start; return the names of those left."""
    import threading

    while True:
        threads = [
            thread
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.current_thread()
        ]
        left = until - monotonic()
        if not threads or left <= 0:
            return [thread.name for thread in threads]
        threads[0].join(left)


def _finish_files(until: float) -> None:
    """Flush files, and write the ends of archives."""
    files = _open_files()
    if not files:
        return
    import threading

    # Threads that still run fail once their files are closed; that is not worth a traceback.
    threading.excepthook = lambda _: None
    waiting = iter(files)
    current = files[:1]

    def finish() -> None:
        for file in waiting:
            current[:] = [file]
            try:
                # Python's own files need no more than a flush: the system closes them.
                if type(file).__module__ == "_io":
                    file.flush()
                else:
                    file.close()
            except Exception as error:  # noqa: BLE001  # the next file must be closed all the same
                why = f"{type(error).__name__}: {error}"
                _log(f"{_description_of(file)} could not be closed: {why}")

    # Another thread may hold a file's lock; the other files do not wait for it.
    held: list[tuple[threading.Thread, Any]] = []
    while (left := until - monotonic()) > 0:
        thread = _start_thread(finish)
        if thread is None:
            break
        thread.join(min(_FILE_SECONDS, left))
        if not thread.is_alive():
            break
        held.append((thread, *current))
    for thread, file in held:
        thread.join(max(0.0, until - monotonic()))
        if thread.is_alive():
            _log(f"{_description_of(file)} could not be written completely in time.")


def _open_files() -> list[Any]:
    """Return the files that are open for writing, in the order in which to close them: wrappers first."""
    import _io
    import gc

    ranks: dict[int, int] = {}  # By identity: not every class can be hashed.
    for rank, kinds in (
        (1, _family(_io._IOBase)),  # noqa: SLF001 - `io.IOBase` is not the base of all
        (0, _family(_io._TextIOBase)),  # noqa: SLF001
        (2, _family(getattr(sys.modules.get("zipfile"), "ZipFile", None))),
        (3, _family(getattr(sys.modules.get("tempfile"), "_TemporaryFileWrapper", None))),
        (4, [_io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair]),
    ):
        ranks.update((id(kind), rank) for kind in kinds)
    for kind in (_io.FileIO, _io.BufferedReader, _io.BytesIO, _io.StringIO):
        del ranks[id(kind)]  # They have nothing to flush.
    # `gc.freeze` hid the objects of Kinetic's own modules, so there is little to search.
    found = [(ranks[id(type(each))], each) for each in gc.get_objects() if id(type(each)) in ranks]
    written = [(rank, each) for rank, each in found if _is_written(each)]
    return [each for _, each in sorted(written, key=lambda pair: pair[0])]


def _family(kind: Any) -> list[Any]:
    """Return the class *kind* and all its subclasses; an empty list if *kind* is not a class."""
    found: list[Any] = []
    todo = [kind] if isinstance(kind, type) else []
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += type.__subclasses__(cls)
    return found


def _is_written(file: Any) -> bool:
    try:
        if hasattr(file, "namelist"):  # A ZipFile, whose directory is not written yet.
            return file.fp is not None and file.mode != "r"
        if file.closed or not file.writable():
            return False
    except Exception:  # noqa: BLE001  # user classes, and half-constructed objects
        return False
    try:
        return file.fileno() not in (0, 1, 2)  # Standard output and error are needed to the end.
    except Exception:  # noqa: BLE001  # it has no descriptor
        return True


def _description_of(file: Any) -> str:
    try:
        return f"The open file {file.name!r}"
    except Exception:  # noqa: BLE001  # it has no name, or its class is the user's
        return f"A {type(file).__name__}"


def _log(text: str) -> None:
    print_error(f"[kinetic] {text}\n")


def leave_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process if it is not *pid*: a process that user code forked must neither report nor clean up.

    Print the traceback of *error*, as Python does for an exception that leaves a script.
    """
    if os.getpid() == pid:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if code and not isinstance(error.code, int):
            print_error(f"{error.code}\n")
    elif error is not None:
        from kinetic_runner.child.tracebacks import text_of

        code = 1
        print_error(text_of(error))
    flush()
    os._exit(code & 0xFF)


def restart(task: Task, variables: Mapping[str, str], *, without: Sequence[str]) -> NoReturn:
    """Run this child again as a new program that goes on with *task*: it finds packages installed meanwhile.

    Its pid, its pipes and its arguments stay. *variables* are added to its environment, and those named in
    *without* are removed. A stop that is requested meanwhile reaches the new program, which unblocks
    `STOP_SIGNALS`.
    """
    ambient = os.environ  # noqa: TID251 - passed on as a whole
    environment = {name: text for name, text in ambient.items() if name not in without}
    before, fds = sys.orig_argv[1:-2], sys.orig_argv[-2:]
    for fd in (*map(int, fds), task.stop_fd):
        if fd is not None:
            os.set_inheritable(fd, True)
    sys.stdout.flush()
    sys.stderr.flush()
    pthread_sigmask(SIG_BLOCK, STOP_SIGNALS)
    os.execve(  # noqa: S606
        sys.executable,
        [sys.executable, *before, RESTARTED, task.encode(), *fds],
        {**environment, **variables},
    )
