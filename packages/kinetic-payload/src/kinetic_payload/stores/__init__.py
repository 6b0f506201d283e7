"""Where objects lie: opening a store by its location."""

from __future__ import annotations

import sys

from kinetic_payload.errors import StoreError
from kinetic_payload.store import Location, Store


def open_store(location: Location) -> Store:
    """Open the store at *location*, making a folder that is not there yet.

    Raises:
        StoreError: This version, or this system, has no store of that kind.
    """
    if location.kind != "folder":
        raise StoreError(
            f"{location} is a bucket; this version of Kinetic keeps jobs in folders only.",
            hint="Unset KINETIC_STORE, or point it to a folder.",
        )
    if sys.platform == "win32":
        raise StoreError(
            "A folder store needs Linux or macOS.", hint="On Windows, use Kinetic inside WSL."
        )
    from pathlib import Path

    from kinetic_payload.stores.folder import FolderStore

    return FolderStore(Path(location.path))
