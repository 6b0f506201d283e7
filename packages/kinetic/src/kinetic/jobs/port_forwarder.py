"""A process that forwards a port of this machine to a job, for as long as its parent wants it.

    python -m kinetic.jobs.port_forwarder

The first line of its stdin says what to forward. It ends with its stdin, that is, with its parent.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from kinetic.errors import InvalidRequestError
from kinetic.settings.settings import Settings
from kinetic_payload.errors import KineticError

if TYPE_CHECKING:
    from kinetic_payload.records.job import JobRecord

LOOPBACK = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket that listens on *port* of the loopback interface; 0: on any free one.

    Raises:
        InvalidRequestError: The port is taken, or no such port can be used.
    """
    try:
        return socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise InvalidRequestError(
            f"Port {port} of this machine cannot be used for the debugger: {why}.",
            hint="Choose another one, or 0 for any free one: debug_attach(local_port=…), "
            "kinetic jobs debug --port …",
        ) from error


def start_forwarder(
    record: JobRecord, settings: Settings, listener: socket.socket, port: int
) -> subprocess.Popen[bytes]:
    """Start a process that connects the clients of *listener* to *port* of the job's leader.

    It ends when it is terminated, or when this process ends.
    """
    from kinetic_payload.records.encode import encode

    # A process with the same environment finds all other settings by itself.
    arguments = {
        name: str(setting.value)
        for name, setting in settings.items()
        if setting.source == "argument" and setting.value is not None
    }
    order = {
        "record": encode(record).decode(),
        "settings": arguments,
        "listener": listener.fileno(),
        "port": port,
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        pass_fds=[listener.fileno()],
        start_new_session=True,  # Ctrl-C is for this process, which decides what ends.
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(order).encode() + b"\n")
    process.stdin.flush()
    return process


def main() -> None:
    """Forward until stdin ends."""
    order = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not order:
        return
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    from kinetic.jobs.services import connect
    from kinetic.target import Target
    from kinetic_payload.records.decode import decode
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import parse_location

    try:
        record = decode(JobRecord, order["record"].encode(), name="stdin")
        settings = Settings.from_environment(**order["settings"])
        location = parse_location(record.bucket_name)
        services = connect(record.backend, Target.of(record), location, settings)
        forward = services.backend.forward(record)
        assert forward is not None, (
            "the parent starts this process only if there is something to forward"
        )
        with socket.socket(fileno=order["listener"]) as listener:
            forward.serve(listener, order["port"], _report)
    except KineticError as error:
        _report(f"{error.message} {error.hint or ''}".rstrip())
        sys.exit(1)


def _exit_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _report(text: str) -> None:
    sys.stderr.write(f"kinetic: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
