"""What a supervisor knows of its job, as a small file that is replaced as a whole."""

from __future__ import annotations

import json
import os

from kinetic_payload.private_files import open_private

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
    fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        left = memoryview(json.dumps(state, indent=1).encode())
        while left:  # A disk that is nearly full takes a part, and refuses the next.
            left = left[os.write(fd, left) :]
    finally:
        os.close(fd)
    os.replace(temporary, path)  # noqa: PTH105 - light


def read_state(path: str) -> State | None:
    """Return the state at *path*, or None while there is none.

    A damaged one (a machine that lost its power may leave an empty file) says that the job had begun,
    and no more: its outcome and its hosts' reports are elsewhere.
    """
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - light
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        state = json.loads(data)
        if _is_state(state):
            return state  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    return {"status": "running", "reason": f"{path} is damaged.", "attempts": []}


def _is_state(found: object) -> bool:
    return (
        isinstance(found, dict)
        and found.get("status") in _STATUSES
        and isinstance(found.get("reason"), str)
        and isinstance(found.get("attempts"), list)
        and all(isinstance(one, dict) and _ATTEMPT.issubset(one) for one in found["attempts"])
    )


_STATUSES = ("running", "succeeded", "failed")
_ATTEMPT = {"number", "hosts", "state", "message"}
