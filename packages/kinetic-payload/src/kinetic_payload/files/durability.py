"""Durability: the order in which files reach the disk."""

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
    """Flush this open file to disk before anything that is written or renamed later.

    `fsync` of macOS leaves the order to the drive, so a power cut could keep a rename and lose the
    contents. A barrier keeps the order, and takes a tenth of the time of waiting for the drive
    (`man 2 fcntl` on macOS).
    """
    if platform == "darwin":
        try:
            control(descriptor, _BARRIER)
        except OSError:  # A file system without it, such as SMB.
            pass
        else:
            return
    os.fsync(descriptor)
