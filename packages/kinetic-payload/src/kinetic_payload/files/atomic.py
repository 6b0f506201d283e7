"""What appears at a path as a whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kinetic_payload.files.private import make_folder


@contextmanager
def prepared_beside(dest: Path) -> Iterator[Path]:
    """Yield a new folder beside *dest* in which to prepare what is to `appear` there.

    What is left in it at the end of the block is removed.
    """
    folder = dest.with_name(f".{dest.name[:50]}.{os.urandom(6).hex()}")
    try:
        make_folder(folder)
        yield folder
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def appear(source: Path, dest: Path) -> None:
    """Rename *source* to *dest*, where an empty folder may be waiting for it."""
    with suppress(OSError):
        dest.rmdir()
    source.rename(dest)
