"""What a supervisor knows of its job, as a small file that is replaced as a whole."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class AttemptState(TypedDict):
        """One attempt."""

        number: int
        hosts: int
        state: str
        """`running`, `succeeded`, `failed`."""
        message: str
        pids: list[int]
        """Of the runners, for people to read: nothing trusts them."""

    class State(TypedDict):
        """One job."""

        status: str
        """`running`, `succeeded`, `failed`."""
        reason: str
        attempts: list[AttemptState]


def write_state(path: str, state: State) -> None:
    """Replace the state at *path*; a reader sees the old one or the new one."""
    temporary = f"{path}.new"  # There is one writer.
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(state, indent=1).encode(errors="backslashreplace"))
    finally:
        os.close(fd)
    os.replace(temporary, path)  # noqa: PTH105 - light


def read_state(path: str) -> State | None:
    """Return the state at *path*, or None while there is none."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - light
            state: State = json.loads(stream.read())
    except (FileNotFoundError, ValueError):
        return None
    return state
