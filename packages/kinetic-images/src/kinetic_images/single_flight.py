"""Make something with uv once, although several processes ask for it at the same time."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from kinetic_images.errors import InstallError
from kinetic_payload.files.locks import locked
from kinetic_payload.files.private import make_folder, write_private

T = TypeVar("T")

FAILED: Final = ".failed"
"""Suffix of the file that holds the reason of the last failure."""


def single_flight(
    path: Path,
    *,
    ready: Callable[[], T | None],
    make: Callable[[], T],
    waiting: Callable[[], None],
    explain: Callable[[InstallError], InstallError],
) -> T:
    """Return the result of *ready* if it is not None; otherwise *make* it, or wait while another process does.

    `{path}.lock` is held while it is made. If *make* fails, processes that waited for it fail as well, with
    its reason; later calls try again. *waiting* is called once if there is something to wait for. *explain*
    adds the lines of this process's files to the failure of another process.

    Raises:
        InstallError: uv failed, here or in the process that this one waited for.
    """
    found = ready()
    if found is not None:
        return found
    make_folder(path.parent)
    before = _last_failure(path)
    with locked(f"{path}.lock", waiting=waiting):
        found = ready()
        if found is not None:  # Another process made it while we waited.
            return found
        failed = _last_failure(path)
        if failed is not None and failed != before:  # Another process failed while we waited.
            message = failed.get("message")
            error = InstallError(message or "", hint=failed.get("hint"))
            error.output = failed.get("output") or ""
            raise error if message else explain(error)
        failure_file(path).unlink(missing_ok=True)
        try:
            return make()
        except InstallError as error:
            if not error.killed:  # If only this uv was killed, the waiting processes need not fail.
                # Each reader explains the output again, with the lines of its own copy of the project.
                failure = {
                    "attempt": secrets.token_hex(8),
                    "output": error.output,
                    "message": None if error.explained else error.message,
                    "hint": error.hint,
                }
                with suppress(OSError):  # Without this file, the waiting processes try again.
                    write_private(failure_file(path), json.dumps(failure).encode())
            raise


def failure_file(path: Path) -> Path:
    """Return the file with the reason of the last failure to make *path*."""
    return path.with_name(f"{path.name}{FAILED}")


def _last_failure(path: Path) -> dict[str, str | None] | None:
    try:
        failure = json.loads(failure_file(path).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return failure if isinstance(failure, dict) else None
