"""Check for full disks that jobs on this machine need."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kinetic.home.paths import Home
from kinetic.settings.settings import environment
from kinetic_payload.stores.store import Location

_LEAST: Final = 1 << 20
"""Bytes below which a disk counts as full."""
_MIB: Final = 1 << 20


def needed_by(home: Home, store: Location) -> list[str]:
    """Return the folders to whose disks jobs of *home* and *store* write."""
    stores = [store.path] if store.kind == "folder" else []
    # Not from `tempfile`, which skips folders on full disks.
    return [home.path, *stores, environment().get("TMPDIR") or "/tmp"]  # noqa: S108 - only looked at


def full_disk(folders: Iterable[str]) -> str:
    """Return a message about the first of *folders* whose disk is full; empty if none is."""
    for folder in folders:
        path = Path(folder)
        try:
            while not path.exists() and path != path.parent:
                path = path.parent
            disk = os.statvfs(path)
        except OSError:
            continue
        free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        if size and free < _LEAST:
            return _message(folder, f"{free // _MIB:,} MiB of {size // _MIB:,} MiB are free")
        if disk.f_files and not disk.f_favail:
            return _message(folder, "it can hold no further file")
    return ""


def _message(folder: str, seen: str) -> str:
    return f"The disk of {folder} is full: {seen}. Make room there, so that the outcomes of jobs can be stored."
