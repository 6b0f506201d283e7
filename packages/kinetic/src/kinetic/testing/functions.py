"""Functions that the contract's jobs run, copied into a user's project by `users_project`.

They import the standard library and what every runner has. They and the test exchange objects below
`KINETIC_OUTPUT_DIR`.
"""

from __future__ import annotations

import importlib
import os
import random
import socket
import sys
import threading
from pathlib import Path
from typing import Any


class Sad(Exception):  # noqa: N818 - a user's own, called as users call theirs
    """An exception that takes other arguments than it passes on."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what} ({code})")
        self.code = code


class Unloadable:
    """Can be pickled here, but not unpickled: it needs a module that no job has."""

    def __reduce__(self) -> Any:
        """Name that module."""
        return importlib.import_module, ("module_that_no_job_has",)


def variables() -> dict[str, str]:
    """Return the variables of this process that are Kinetic's or the contract's."""
    environ = os.environ.items()  # noqa: TID251
    return {name: text for name, text in environ if name.startswith(("KINETIC_", "CONTRACT_"))}


def describe(*values: Any, size: int = 0, **named: Any) -> dict[str, Any]:
    """Return the arguments, variables and *size* bytes; write the output `note`."""
    put("note", "written by the job")
    large = random.Random(7).randbytes(size)  # noqa: S311
    return {"values": values, "named": named, "variables": variables(), "large": large}


def fail(what: str, code: int) -> None:
    """Print a line, and raise `Sad`."""
    print("about to fail")  # noqa: T201
    raise Sad(what, code)


def leave(code: int) -> None:
    """Exit like a script."""
    sys.exit(code)


def fail_until(attempt: int) -> int:
    """Raise `ValueError` in earlier attempts; return the number of this one."""
    number = int(variables()["KINETIC_ATTEMPT"])
    print(f"attempt {number} at work", flush=True)  # noqa: T201
    if number < attempt:
        raise ValueError(f"attempt {number} failed")
    return number


def count(lines: int) -> None:
    """Print numbered lines to each stream, and text without a line end."""
    for number in range(lines):
        print("out", number)  # noqa: T201
        print("err", number, file=sys.stderr)  # noqa: T201
    threading.Event().wait(0.5)  # Lines of two streams may change places.
    print("no end", end="")  # noqa: T201


def wait(value: Any) -> Any:
    """Print `waiting`, leave the output `begun-{attempt}-{process}`, and return once there is `go`."""
    put(f"begun-{variables()['KINETIC_ATTEMPT']}-{os.getpid()}")
    print("waiting", flush=True)  # noqa: T201
    while not is_there("go"):
        threading.Event().wait(0.05)
    print("done")  # noqa: T201
    return value


def beat() -> None:
    """Write outputs `beats/{number}` forever."""
    print("beating", flush=True)  # noqa: T201
    number = 0
    while True:
        put(f"beats/{number:06d}")
        number += 1
        threading.Event().wait(0.05)


def meet(hosts: int, failing: int) -> int:
    """Return the host's number once all of them are here; the one that is *failing* raises `Sad`.

    The others then wait to be stopped.
    """
    host = int(variables()["KINETIC_HOST_INDEX"])
    print("hello from", host, flush=True)  # noqa: T201
    put(f"here-{host}")
    while not all(is_there(f"here-{number}") for number in range(hosts)):
        threading.Event().wait(0.05)
    if host == failing:
        raise Sad("host", host)
    while failing >= 0:
        threading.Event().wait(1)
    return host


def answer() -> None:
    """Listen on the loopback interface, leave the output `port-{number}`, and answer one client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        put(f"port-{listener.getsockname()[1]}")
        client, _ = listener.accept()
        with client:
            client.sendall(client.recv(100).upper())
            client.recv(100)


def put(name: str, text: str = "") -> None:
    """Write the output *name* atomically."""
    where = variables()["KINETIC_OUTPUT_DIR"]
    if "://" in where:
        _bucket(where).write(name, text.encode())
        return
    path = Path(where, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def is_there(name: str) -> bool:
    """Return whether there is an output *name*."""
    where = variables()["KINETIC_OUTPUT_DIR"]
    return _bucket(where).stat(name) is not None if "://" in where else Path(where, name).exists()


def _bucket(where: str) -> Any:
    # The runner's own: a job over a bucket has it, whatever else its image lacks.
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location

    return open_store(parse_location(where))
