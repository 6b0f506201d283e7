"""debugpy on the loopback interface: listen, say where, wait for a client."""

from __future__ import annotations

import sys
from typing import Final

from kinetic_payload.errors import KineticError

HOST: Final = "127.0.0.1"
"""Never another one: whoever reaches a debug server runs code as its user."""

_LISTENING: Final = "[kinetic] debugpy is listening on "
_ATTACHED: Final = "[kinetic] A debugger is attached; the function starts."


class DebuggerError(KineticError):
    """The debugger that was asked for cannot be started."""


def listening_line(port: int) -> str:
    """Return the line of a job's log that says where its debugger listens."""
    return f"{_LISTENING}{HOST}:{port}"


def port_in(line: str) -> int | None:
    """Return the port that a line of a log announces, or None if it is not `listening_line`."""
    line = line.strip()
    if not line.startswith(_LISTENING):
        return None
    port = line.removeprefix(f"{_LISTENING}{HOST}:")
    return int(port) if port.isascii() and port.isdigit() else None


def listen(port: int) -> int:
    """Start the debug server on *port* (0: any free one), announce it and return its port.

    Raises:
        DebuggerError: debugpy is missing, or the port is taken.
    """
    try:
        import debugpy
    except ImportError as error:
        raise DebuggerError(
            "The job was submitted with debug=True, but debugpy is not installed where it runs.",
            hint="Add debugpy to the project's requirements, or install kinetic[debug].",
        ) from error
    try:
        _, bound = debugpy.listen((HOST, port))
    except (RuntimeError, OSError) as error:
        raise DebuggerError(
            f"debugpy could not listen on {HOST}:{port}: {error}.",
            hint="Choose another port, or 0 for any free one.",
        ) from error
    _say(listening_line(bound))
    return int(bound)


def wait_for_client() -> None:
    """Return when a debugger is attached and has set its breakpoints.

    An exception from a signal handler (SIGTERM) breaks the wait off.
    """
    import debugpy

    debugpy.wait_for_client()
    _say(_ATTACHED)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
