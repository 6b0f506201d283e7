"""Whether a disk that jobs of this machine need is full."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinetic.backends.local.paths import Home
from kinetic.settings.settings import environment
from kinetic_payload.stores.store import Location

_LEAST: Final = 1 << 20
"""Bytes with which nothing can be done."""
_MIB: Final = 1 << 20


def needed_by(home: Home, store: Location) -> list[str]:
    """Return the folders on whose disks the jobs of *home* with their objects in *store* write."""
    stores = [store.path] if store.kind == "folder" else []
    # `tempfile` would look for a folder in which there is room.
    return [home.path, *stores, environment().get("TMPDIR") or "/tmp"]  # noqa: S108 - only looked at


def full_disk(folders: Iterable[str]) -> str:
    """Return what to say of the first of *folders* whose disk is full; nothing if none is."""
    for folder in folders:
        try:
            disk = os.statvfs(_existing(folder))
        except OSError:
            continue
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        if size and free < _LEAST:
            return _words(folder, f"{free // _MIB:,} MiB of {size // _MIB:,} MiB are free")
        if disk.f_files and not disk.f_favail:
            return _words(folder, "it can hold no further file")
    return ""


def _existing(folder: str) -> Path:
    path = Path(folder)
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _words(folder: str, seen: str) -> str:
    return (
        f"The disk of {folder} is full: {seen}. Make room there; how a job ends is stored as soon as "
        "there is some."
    )
