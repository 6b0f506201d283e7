"""The state of a local job, in a small file that its supervisor replaces atomically."""

from __future__ import annotations

import json
import os

from kinetic_payload.files.private import FULL_DISK, open_private

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
        """Process ids of the runners, for people to read: no code relies on them."""

    class State(TypedDict):
        """One job."""

        status: str
        """`running`, `succeeded`, `failed`."""
        reason: str
        attempts: list[AttemptState]


def write_state(path: str, state: State) -> None:
    """Replace the state at *path*; a reader sees the old state or the new one.

    On a full disk the new state overwrites the old one in place.
    """
    data = json.dumps(state, indent=1).encode()
    temporary = f"{path}.new"  # A fixed name is enough: there is only one writer.
    try:
        _write(temporary, os.O_CREAT | os.O_TRUNC, data)
        os.replace(temporary, path)  # noqa: PTH105 - light
    except OSError as error:
        if error.errno not in FULL_DISK or not os.path.exists(path):  # noqa: PTH110 - light
            raise
        # The file's own blocks can be written again. A shorter state is padded with spaces.
        _write(path, 0, data.ljust(os.path.getsize(path)))  # noqa: PTH202 - light


def _write(path: str, flags: int, data: bytes) -> None:
    fd = open_private(path, os.O_WRONLY | flags)
    try:
        left = memoryview(data)
        while left:  # A disk that is nearly full takes one part, and refuses the next.
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)


def read_state(path: str) -> State | None:
    """Return the state at *path*, or None while there is none.

    A damaged state (after a power failure, the file may be empty) shows only that the job had begun. Its
    outcome and its hosts' reports are in the store.
    """
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - light
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        state = json.loads(data)
        if (
            isinstance(state, dict)
            and state.get("status") in _STATUSES
            and isinstance(state.get("reason"), str)
            and isinstance(state.get("attempts"), list)
            and all(isinstance(one, dict) and _ATTEMPT.issubset(one) for one in state["attempts"])
        ):
            return state  # type: ignore[return-value]
    except (ValueError, RecursionError):
        pass
    return {"status": "running", "reason": f"{path} is damaged.", "attempts": []}


_STATUSES = ("running", "succeeded", "failed")
_ATTEMPT = {"number", "hosts", "state", "message"}
