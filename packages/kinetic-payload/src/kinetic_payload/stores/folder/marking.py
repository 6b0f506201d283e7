"""The mark of a folder store: a folder without it, in which there are other files, is refused.

The mark is the folder for locks and temporary files, which the first write creates before any object.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from itertools import islice

from kinetic_payload.errors import StoreError, StorePermissionError
from kinetic_payload.layout import is_entry
from kinetic_payload.stores.names import OWN_FOLDER
from kinetic_payload.stores.store import Location

_SHOWN = 3


def refuse_foreign_folder(location: Location) -> None:
    """Refuse a folder in which a store would mix its objects with other files.

    A folder may be a store if it is marked as one, absent, empty, or contains only objects of a store.
    Nothing is written. Buckets are not checked.

    Raises:
        StoreError: The folder contains other files; the message names some of them.
        StorePermissionError: It cannot be read.
    """
    if location.kind != "folder" or _is_marked(location.path):
        return
    try:
        foreign = list(islice(_foreign_entries(location.path), _SHOWN + 1))
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise StoreError(
            f"{location.path} cannot be a store: it is not a folder.",
            hint="Name another folder with KINETIC_HOME or KINETIC_STORE.",
        ) from error
    except PermissionError as error:
        raise StorePermissionError(
            f"{location.path} cannot be used as a store: {error.strerror} ({error.filename}).",
            hint="The store's folder must belong to you. KINETIC_STORE names another one.",
        ) from error
    # Another process may have begun to use it between the two checks.
    if foreign and not _is_marked(location.path):
        shown = ", ".join(foreign[:_SHOWN]) + (", …" if len(foreign) > _SHOWN else "")
        mark = shlex.quote(f"{location.path}/{OWN_FOLDER}")
        raise StoreError(
            f"{location.path} is not a store of Kinetic and contains other files: {shown}.",
            hint="Name an empty folder, or one that does not exist yet, with KINETIC_STORE. "
            f"To keep jobs beside these files anyway: mkdir {mark}",
        )


def _is_marked(root: str) -> bool:
    return os.path.isdir(f"{root}/{OWN_FOLDER}")  # noqa: PTH112 - checked at every submit


def _foreign_entries(root: str) -> Iterator[str]:
    """Iterate over entries of the upper two levels that cannot belong to a store."""
    with os.scandir(root) as entries:
        for entry in entries:
            if not is_entry(entry.name) or not entry.is_dir(follow_symlinks=False):
                yield entry.name
                continue
            with os.scandir(entry.path) as children:
                for child in children:
                    path = f"{entry.name}/{child.name}"
                    if not is_entry(path):
                        yield path
