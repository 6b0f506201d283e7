"""Folders of packages on this machine: `--find-links` and local indexes, whose paths differ between machines."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kinetic_images.declared.uv_settings import Index
from kinetic_images.dependencies import Dependencies
from kinetic_images.lock.packages import file_path


def package_folders(dependencies: Dependencies) -> tuple[tuple[Path, ...], bool]:
    """Return the folders on this machine whose files are packages, as *dependencies* name them.

    Also return whether packages may be elsewhere, too: in a local index, or where a local page links to.
    """
    local = [(index, path) for index in dependencies.indexes if (path := _path_of(index))]
    flat = [path for index, path in local if index.is_flat and path.is_dir()]
    return tuple(dict.fromkeys(flat)), len(flat) < len(local)


def portable(index: Index) -> str:
    """Return a name of *index* for digests that machines share: its address, or the names of the files there.

    The same files in different folders give the same name.
    """
    path = _path_of(index)
    try:
        names = sorted(child.name for child in path.iterdir()) if path else None
    except OSError:
        names = None
    if names is None:
        return index.address
    return f"files:{hashlib.sha256(json.dumps(names).encode()).hexdigest()}"


def _path_of(index: Index) -> Path | None:
    """Return the path that *index* names; None: it is elsewhere."""
    return Path(index.address) if index.address.startswith("/") else file_path(index.address)
