"""(child) Shut Python down in bounded time: join threads, run exit handlers, flush open files."""

from __future__ import annotations

import sys
from time import monotonic
from typing import Any, Final

from kinetic_runner.child.streams import flush

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

_HANDLERS_SHARE: Final = 0.5
"""Part of the time that is kept for exit handlers while threads go on."""
_CLOSING_SHARE: Final = 0.1
"""The same for closing files."""
_FILE_SECONDS: Final = 1.0
"""Seconds after which one file does not delay the others any more."""
_NAMES: Final = 10


def shut_down(seconds: float) -> None:
    """Join threads, run exit handlers, close files; meant to take at most *seconds*.

    Python waits for threads and then runs exit handlers. So does this; but handlers run also if
    threads go on, and those threads are named in the log. Exit handlers and flushing C's streams are
    not limited here: the parent limits them.
    """
    began = monotonic()
    handlers_at = began + seconds * (1 - _HANDLERS_SHARE)
    _run_threading_handlers(handlers_at)
    _join_threads(handlers_at)
    import atexit

    atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way to run them now
    left = _join_threads(began + seconds * (1 - _CLOSING_SHARE))
    if left:
        _log(f"The function has ended, but not all of its threads; cut off: {_named(left)}.")
    _finish_files(began + seconds)
    flush()


def _run_threading_handlers(until: float) -> None:
    """Run what `threading` runs before it waits for threads: executors tell theirs to end."""
    import threading

    handlers = list(reversed(getattr(threading, "_threading_atexits", ())))
    if handlers:
        # Those of executors join their threads, without a limit.
        thread = _started(lambda: [handler() for handler in handlers])
        if thread is not None:
            thread.join(max(0.0, until - monotonic()))


def _started(run: Callable[[], object]) -> threading.Thread | None:
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


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _finish_files(until: float) -> None:
    """Flush files, and write the ends of archives."""
    files = _open_files()
    if not files:
        return
    import threading

    # Threads that go on fail once their files are closed, which is not worth a traceback.
    threading.excepthook = lambda _: None
    waiting = iter(files)
    current = files[:1]

    def finish() -> None:
        for file in waiting:
            current[:] = [file]
            _finish(file)

    # Another thread may hold a file's lock; the other files do not wait for it.
    held: list[tuple[threading.Thread, Any]] = []
    while (left := until - monotonic()) > 0:
        thread = _started(finish)
        if thread is None:
            break
        thread.join(min(_FILE_SECONDS, left))
        if not thread.is_alive():
            break
        held.append((thread, *current))
    for thread, file in held:
        thread.join(max(0.0, until - monotonic()))
        if thread.is_alive():
            _log(f"{_described(file)} could not be written to its end in time.")


def _open_files() -> list[Any]:
    """Return what is open for writing in the order in which to close it: what wraps others first."""
    import _io
    import gc

    ranks: dict[int, int] = {}  # By identity: not every class can be hashed.
    for rank, kinds in (
        (1, _family(_io._IOBase)),  # noqa: SLF001 - `io.IOBase` is not the base of all
        (0, _family(_io._TextIOBase)),  # noqa: SLF001
        (2, _family(_class_of("zipfile", "ZipFile"))),
        (3, _family(_class_of("tempfile", "_TemporaryFileWrapper"))),
        (4, [_io.BufferedWriter, _io.BufferedRandom, _io.BufferedRWPair]),
    ):
        ranks.update((id(kind), rank) for kind in kinds)
    for kind in (_io.FileIO, _io.BufferedReader, _io.BytesIO, _io.StringIO):
        del ranks[id(kind)]  # They buffer nothing.
    # `gc.freeze` hid what came with our own modules, so there is little to look through.
    found = [(ranks[id(type(each))], each) for each in gc.get_objects() if id(type(each)) in ranks]
    written = [(rank, each) for rank, each in found if _is_written(each)]
    return [each for _, each in sorted(written, key=lambda pair: pair[0])]


def _class_of(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _family(kind: Any) -> list[Any]:
    """Return *kind* and all that is derived from it; nothing if there is no such class."""
    found: list[Any] = []
    todo = [kind] if isinstance(kind, type) else []
    while todo:
        one = todo.pop()
        found.append(one)
        todo += type.__subclasses__(one)
    return found


def _is_written(file: Any) -> bool:
    try:
        if hasattr(file, "namelist"):  # A ZipFile, which has its directory to write.
            return file.fp is not None and file.mode != "r"
        return not file.closed and file.writable() and not _is_standard(file)
    except Exception:  # noqa: BLE001  # classes of the user's, and objects that are half made
        return False


def _is_standard(file: Any) -> bool:
    """Return whether *file* is standard output or error, which are needed to the end."""
    try:
        return file.fileno() in (0, 1, 2)
    except (OSError, AttributeError):
        return False


def _finish(file: Any) -> None:
    try:
        # Python's own files need no more than a flush: the system closes them.
        if type(file).__module__ == "_io":
            file.flush()
        else:
            file.close()
    except Exception as error:  # noqa: BLE001  # the next file must be closed all the same
        _log(f"{_described(file)} could not be closed: {type(error).__name__}: {error}")


def _described(file: Any) -> str:
    try:
        return f"The open file {file.name!r}"
    except Exception:  # noqa: BLE001  # it has no name, or its class is the user's
        return f"A {type(file).__name__}"


def _log(text: str) -> None:
    try:
        sys.stderr.write(f"[kinetic] {text}\n")
    except Exception:  # noqa: BLE001  # user code may have put anything there, or closed it
        return
