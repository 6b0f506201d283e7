"""Marks of work that is done once in a while, by whichever process comes first: `is_due`."""

from __future__ import annotations

import os
from pathlib import Path

from kinetic_payload.files.private import make_folder, write_private


def is_due(mark: Path, now: float, *, every: float, at_first: bool = False) -> bool:
    """Return whether the work of *mark* is due: it was not done in the last *every* seconds. Then it counts as done.

    *at_first* is the result if there is no mark yet.
    """
    try:
        # A mark from the future was made by a wrong clock, and would prevent the work until then.
        if abs(now - mark.stat().st_mtime) < every:
            return False
        os.utime(mark)
    except FileNotFoundError:
        make_folder(mark.parent)
        write_private(mark, b"")
        return at_first
    return True
