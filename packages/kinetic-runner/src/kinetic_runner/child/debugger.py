"""debugpy on the loopback interface: listen, print the address, wait for a client."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from kinetic_payload.errors import KineticError

HOST: Final = "127.0.0.1"
"""Never another interface: a client of a debug server can run any code as the server's user."""

_POLL_SECONDS: Final = 0.2

_LISTENING: Final = f"[kinetic] debugpy is listening on {HOST}:"


class DebuggerError(KineticError):
    """The requested debugger cannot be started."""


@dataclass(frozen=True)
class Listening:
    """The facts that a client needs to attach: the port, and where the user's files are."""

    port: int
    project: str
    """The folder of the job in which the files of the user's project lie."""
    folder: str = ""
    """The folder in the project in which the function runs."""


def listening_line(listening: Listening) -> str:
    """Return the line of a job's log that names the address of its debugger, and its files."""
    where = asdict(listening)
    return f"{_LISTENING}{where.pop('port')} {json.dumps(where)}"


def listening_in(line: str) -> Listening | None:
    """Parse a line of a log; return None if it is not from `listening_line`."""
    line = line.strip()
    if not line.startswith(_LISTENING):
        return None
    port, _, where = line.removeprefix(_LISTENING).partition(" ")
    try:
        listening = Listening(int(port), **json.loads(where))
    except (ValueError, TypeError, RecursionError):
        return None  # The function can print such a line, too.
    texts = isinstance(listening.project, str) and isinstance(listening.folder, str)
    return listening if texts and 0 < listening.port < 1 << 16 else None


def listen(port: int, project: str, folder: str = "") -> int:
    """Start the debug server on *port* (0: any free one), announce it and return its port.

    *project* is the folder of the user's files on this host; the function runs in *folder* below it.

    Raises:
        DebuggerError: debugpy is missing, or the port is taken.
    """
    try:
        import debugpy
    except ImportError as error:
        raise DebuggerError(
            "The job was submitted with debug=True, but debugpy is not installed where it runs.",
            hint="Add debugpy to the project's requirements, or to the image if you named one.",
        ) from error
    try:
        _, bound = debugpy.listen((HOST, port))
    except (RuntimeError, OSError) as error:
        raise DebuggerError(
            f"debugpy could not listen on {HOST}:{port}: {error}.",
            hint="Choose another port, or 0 for any free one.",
        ) from error
    _print_line(listening_line(Listening(bound, project, folder)))
    return int(bound)


def wait_for_client(stop_requested: Callable[[], bool]) -> bool:
    """Return True when a debugger is attached and has set its breakpoints, False once a stop is requested.

    An exception from a signal handler is not enough to end the wait: if the signal comes while the
    debugger's own code runs, it swallows the exception.
    """
    import threading

    import debugpy

    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            if stop_requested():
                with suppress(RuntimeError):  # debugpy does not wait yet: try again.
                    debugpy.wait_for_client.cancel()

    watcher = threading.Thread(target=watch, name="kinetic-debugger", daemon=True)
    watcher.pydev_do_not_trace = True  # type: ignore[attr-defined]
    watcher.start()
    try:
        debugpy.wait_for_client()
    finally:
        over.set()
    if stop_requested():
        return False
    _print_line("[kinetic] A debugger is attached; the function starts.")
    return True


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
