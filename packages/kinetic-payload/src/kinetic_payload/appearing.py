"""What appears at a path as a whole, or not at all."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
        with suppress(OSError):  # A file system without it, such as SMB.
            control(descriptor, _BARRIER)
            return
    os.fsync(descriptor)


@contextmanager
def prepared_beside(dest: Path) -> Iterator[Path]:
    """Yield a new folder beside *dest* in which to prepare what is to `appear` there.

    What is left in it at the end of the block is removed.
    """
    folder = dest.with_name(f".{dest.name[:50]}.{os.urandom(6).hex()}")
    try:
        folder.mkdir(parents=True)
        yield folder
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def appear(source: Path, dest: Path) -> None:
    """Rename *source* to *dest*, where an empty folder may be waiting for it."""
    with suppress(OSError):
        dest.rmdir()
    source.rename(dest)
