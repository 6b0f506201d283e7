"""The caches of a home, in its folder `cache`: what was not used for long is removed, once a day.

Files that are used have their modification time reset, so the times that readers leave behind (`noatime`) do
not matter. Loss of a file costs work, and nothing else: its reader makes it again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

from kinetic_images.lock.cache import FOLDER as LOCKS
from kinetic_images.wheel_files import WheelFiles
from kinetic_payload.files.due import is_due
from kinetic_payload.files.locks import locked
from kinetic_payload.files.temporary import collect_leftovers

_DAY: Final = 86_400.0
FILES_AGE: Final = 30 * _DAY
"""Seconds for which unused wheels and records of layers are kept."""
CHOICES_AGE: Final = 180 * _DAY
"""Seconds for which unused locks and images are kept: without them, other versions may be chosen."""
DOWNLOADS_SIZE: Final = 20_000_000_000
"""How many bytes of wheels are kept, apart from those of the last day."""


def collect_daily(home: Path) -> None:
    """Remove what was not used for long from the caches of *home*, unless that was done within a day."""
    with suppress(OSError):
        if is_due(home / "cache" / ".collected", time(), every=_DAY):
            collect(home, time())


def collect(
    home: Path,
    now: float,
    *,
    downloads_size: int = DOWNLOADS_SIZE,
    age: float | None = None,
    spare: Callable[[Path], bool] = lambda _: False,
) -> None:
    """Remove from the caches of *home* what was not used for long before *now*.

    Any number of processes may use the caches meanwhile.

    Args:
        home: `KINETIC_HOME`.
        now: In seconds since the epoch.
        downloads_size: How many bytes of wheels are kept, apart from those of the last day.
        age: Seconds that count as long, in place of `FILES_AGE` and `CHOICES_AGE`. Leftovers then stay.
        spare: Called with each file that is about to be removed; it stays if the result is true.
    """
    files_age, choices_age = (FILES_AGE, CHOICES_AGE) if age is None else (age, age)
    cache = home / "cache"
    wheels = WheelFiles(cache / "downloads")
    wheels.collect_unused(now - files_age, size=downloads_size, kept=now - _DAY, spare=spare)
    _remove_old(cache.glob("layers/records/*.json"), now - files_age, spare)
    images = cache / "images"
    _remove_old((path for path in images.rglob("*") if path.is_file()), now - choices_age, spare)
    folder = home.joinpath(*LOCKS)
    _remove_old(folder.glob("*.json"), now - choices_age, spare)
    if age is not None:
        return  # Leftovers of killed processes go once a day.
    wheels.collect_leftovers()
    with suppress(OSError):
        collect_leftovers(str(cache / "layers" / "partial"))
    for scratch in folder.glob(".*-*/"):  # Of processes that were killed.
        with suppress(OSError):
            if scratch.stat().st_mtime < now - _DAY:
                shutil.rmtree(scratch, ignore_errors=True)
    for path in folder.glob("*.json.lock"):
        if not path.with_suffix("").exists():
            with suppress(OSError), locked(str(path)) as fd:
                if os.fstat(fd).st_mtime < now - _DAY and not path.with_suffix("").exists():
                    path.unlink()  # A process that waits for it notices that, and makes another one.


def _remove_old(paths: Iterator[Path], oldest: float, spare: Callable[[Path], bool]) -> None:
    """Remove those of *paths* that were not used since *oldest*, except those that *spare* spares."""
    for path in paths:
        with suppress(OSError):
            if path.stat().st_mtime < oldest and not spare(path):
                path.unlink()
