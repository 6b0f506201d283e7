"""`KINETIC_HOME`: checks that other users cannot change it, and the cached digests in it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from kinetic.errors import ConfigurationError
from kinetic_payload.files.private import FOLDER_MODE, make_folder, others_may_write

if TYPE_CHECKING:
    from pathlib import Path

    from kinetic_payload.project.stat_cache import StatCache

_FOLDERS = ("bundles", "cache", "environments", "jobs", "ports", "queue")
"""Folders in the home that other users must not read."""
_STORE = "store"
_OR_ANOTHER = "Or name a folder of your own with KINETIC_HOME."


def make_home(path: str) -> None:
    """Make the home *path* unless it exists.

    Raises:
        ConfigurationError: Other users may change what is in it.
        OSError: It cannot be made.
    """
    make_folder(path)
    check_home(path)  # After making it: another user may have been first.


def check_home(path: str) -> None:
    """Make sure that only this user and root may change what is in the home *path*, if it exists.

    Folders in the home that other users may read, as earlier versions made them, are made private. ACLs
    are not checked. Of the folders above the home, only those to which every user may write are checked.

    Raises:
        ConfigurationError: Other users may change it; the hint has the command that corrects this.
    """
    _refuse_replaceable(path)
    private = [f"{path}/{name}" for name in _FOLDERS]
    open_to_all = []
    for folder in (path, f"{path}/{_STORE}", *private):
        found = _stat(folder)
        if found is None:
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise ConfigurationError(
                f"{folder} belongs to user {found.st_uid}, who may change what Kinetic keeps for you (user "
                f"{os.geteuid()}), and runs.",
                hint=f"Run: sudo chown -R {os.geteuid()} {shlex.quote(folder)}\n{_OR_ANOTHER}",
            )
        if others_may_write(found):
            open_to_all.append((folder, stat.S_IMODE(found.st_mode)))
        elif folder in private and found.st_mode & 0o077:
            with suppress(OSError):  # It is root's, or on a file system without modes.
                os.chmod(folder, FOLDER_MODE)  # noqa: PTH101 - light
    if open_to_all:
        seen = ", ".join(f"{folder} (mode {mode:04o})" for folder, mode in open_to_all)
        folders = shlex.join(folder for folder, _ in open_to_all)
        raise ConfigurationError(
            f"Other users may change what Kinetic keeps for you, and runs: {seen}.",
            hint=f"Run: chmod go-w {folders}\nIf that changes nothing, name another folder with "
            "KINETIC_HOME. If you do not trust the other users of this machine, remove what is named above "
            "instead: they may have changed it already.",
        )


def _refuse_replaceable(path: str) -> None:
    """Make sure that not everybody may replace *path*, or may have replaced it before."""
    for above, entry in _way_to(path):
        folder, found = _stat(above), _stat(entry, follow=False)
        if folder is None or not folder.st_mode & stat.S_IWOTH:
            continue
        # In a folder with the sticky bit, /tmp for instance, users may rename only their own entries. But
        # such an entry may be a link, which its owner can point to another folder at any time.
        if not (folder.st_mode & stat.S_ISVTX and _is_trusted(folder)):
            raise ConfigurationError(
                f"Other users may replace {path}, from which Kinetic runs code: every user may write to "
                f"{above} (mode {stat.S_IMODE(folder.st_mode):04o}, of user {folder.st_uid}).",
                hint=f"Run: chmod o-w {shlex.quote(above)}\n{_OR_ANOTHER}",
            )
        if found is not None and stat.S_ISLNK(found.st_mode) and not _is_trusted(found):
            raise ConfigurationError(
                f"Other users may replace {path}, from which Kinetic runs code: {entry} is a link of user "
                f"{found.st_uid}.",
                hint="Set KINETIC_HOME to the folder that the link leads to, if that is yours, or to "
                "another one.",
            )


def _way_to(path: str) -> Iterator[tuple[str, str]]:
    """Iterate over the folders in which the system looks up *path*, also through links.

    Each comes with the path of the entry that is looked up in it.
    """
    at, todo = "/", [part for part in reversed(os.path.abspath(path).split("/")) if part]  # noqa: PTH100 - light
    for _ in range(1000):  # Links may form a cycle.
        if not todo:
            return
        part = todo.pop()
        if part == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - light
            continue
        entry = os.path.join(at, part)  # noqa: PTH118 - light
        yield at, entry
        try:
            target = os.readlink(entry)  # noqa: PTH115 - light
        except OSError:  # The entry is not a link, or does not exist.
            at = entry
            continue
        todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        at = "/" if target.startswith("/") else at


def _is_trusted(found: os.stat_result) -> bool:
    """Return whether *found* belongs to this user or to root, which may have another id in a container."""
    return found.st_uid in (os.geteuid(), 0, os.stat("/").st_uid)  # noqa: PTH116 - light


def _stat(path: str, *, follow: bool = True) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - light
    except OSError:
        return None  # It does not exist or cannot be reached; using it will report that.


def stat_cache(home: Path, tree: Path) -> StatCache:
    """Return the cache of the digests of *tree*'s files, kept in *home* (`KINETIC_HOME`)."""
    from kinetic_payload.project.stat_cache import StatCache

    return StatCache.of(tree, home / "cache" / "trees")
