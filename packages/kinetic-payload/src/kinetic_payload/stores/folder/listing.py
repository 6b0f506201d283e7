"""Lists of a folder store, in order of the objects' names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from kinetic_payload.layout import LISTED
from kinetic_payload.stores.names import is_name
from kinetic_payload.stores.store import ObjectInfo


class _Entry(NamedTuple):
    name: str
    """The name of an object, or that of a folder with its final `/`: sorting by it sorts all objects."""
    path: str
    found: os.stat_result | None
    """None for a folder."""


def info_of(name: str, found: os.stat_result) -> ObjectInfo:
    """Return the information on the object *name* from its file's status *found*."""
    return ObjectInfo(name, found.st_size, found.st_mtime_ns, found.st_mtime_ns / 1e9)


def objects(root: str, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
    """Iterate over the objects below *root* whose name begins with *prefix*, by name."""
    place = _place(root, prefix)
    if place:
        yield from _below(*place, prefix, start_after)


def folders(root: str, prefix: str) -> Iterator[str]:
    """Iterate over the distinct names up to the first `/` after *prefix*, by name."""
    place = _place(root, prefix)
    for entry in _entries(*place) if place else ():
        wanted = entry.found is None and entry.name.startswith(prefix)
        # An empty folder is not part of any name.
        if wanted and next(_below(entry.path, entry.name, entry.name, ""), None):
            yield entry.name


def records(root: str, prefix: str) -> Iterator[ObjectInfo]:
    """Iterate over the objects of the names `LISTED` in the folders right below *prefix*, by name."""
    place = _place(root, prefix)
    for entry in _entries(*place) if place else ():
        for name in LISTED if entry.found is None else ():
            with suppress(FileNotFoundError, NotADirectoryError):
                found = os.stat(f"{entry.path}/{name}")  # noqa: PTH116 - hot
                if stat.S_ISREG(found.st_mode):
                    yield info_of(entry.name + name, found)


def _place(root: str, prefix: str) -> tuple[str, str] | None:
    """Return the folder of all objects with *prefix*, and its name; None if there cannot be one."""
    parent = prefix.rpartition("/")[0]
    if not parent:
        return None if prefix.startswith("/") else (root, "")
    if not is_name(parent):
        return None
    return f"{root}/{parent}", f"{parent}/"


def _below(folder: str, base: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    for entry in _entries(folder, base):
        if entry.found is not None:
            if entry.name.startswith(prefix) and entry.name > start_after:
                yield info_of(entry.name, entry.found)
        elif entry.name.startswith(prefix) and (
            entry.name > start_after or start_after.startswith(entry.name)
        ):
            yield from _below(entry.path, entry.name, prefix, start_after)


def _entries(folder: str, base: str) -> list[_Entry]:
    """Return the entries of *folder*, whose name is *base*, sorted by name."""
    try:
        with os.scandir(folder) as found:
            children = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []  # The folder was deleted meanwhile.
    entries = []
    for child in children:
        name = base + child.name
        if not is_name(name):
            continue
        with suppress(FileNotFoundError):
            if not child.is_dir():
                # A dangling link, a socket or a pipe among a user's outputs is not an object.
                if child.is_file():
                    entries.append(_Entry(name, child.path, child.stat()))
            elif not child.is_symlink():
                entries.append(_Entry(f"{name}/", child.path, None))
    return sorted(entries, key=lambda entry: entry.name)
