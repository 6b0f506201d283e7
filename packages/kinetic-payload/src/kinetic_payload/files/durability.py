"""The order in which files reach the disk."""

from __future__ import annotations

import fcntl
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BARRIER = 85
"""`F_BARRIERFSYNC` of macOS's `fcntl.h`, which Python's module does not name."""


def flush_to_disk(
    descriptor: int,
    *,
    platform: str = sys.platform,
    control: Callable[[int, int], object] = fcntl.fcntl,
) -> None:
    """Let nothing that is written or renamed from now on reach the disk before this open file does.

    `fsync` of macOS leaves the order to the drive, so a power cut could keep the rename and lose the
    contents; a barrier keeps it, at a tenth of what waiting for the drive takes (`man 2 fcntl` there).
    """
    if platform == "darwin":
        try:
            control(descriptor, _BARRIER)
        except OSError:  # A file system without it, such as SMB.
            pass
        else:
            return
    os.fsync(descriptor)
