"""Complete removal of folders into which user code wrote."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress


def put_aside(path: str, *, in_use: Callable[[str], bool]) -> list[str]:
    """Rename the folder *path*, so that it disappears at once; return the folders to remove.

    If it is gone, return the folders that an earlier removal left, except those *in_use*.
    """
    parent, name = os.path.split(path)
    aside = f"{parent}/.{name}."
    gone = f"{aside}{os.urandom(4).hex()}"
    try:
        os.rename(path, gone)  # noqa: PTH104
    except FileNotFoundError:
        import glob

        return [left for left in glob.glob(f"{glob.escape(aside)}*") if not in_use(left)]  # noqa: PTH207
    return [gone]


def remove_tree(path: str) -> tuple[str, ...]:
    """Remove the folder *path* and its contents; return the paths that stay, each with the reason.

    Read-only folders are removed too. Links are not followed. If another file system is mounted inside,
    nothing is removed: its files are not the job's.
    """
    if os.path.islink(path):  # noqa: PTH114
        os.unlink(path)  # noqa: PTH108
        return ()
    mounted = _mount_points_below(path)
    if mounted:
        return tuple(f"{point}: a file system is mounted there" for point in mounted)
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return ()
    # Make all folders of the tree writable, except those of other users.
    folders = [path]
    while folders:
        folder = folders.pop()
        with suppress(OSError):
            os.chmod(folder, 0o700)  # noqa: PTH101 - not a link: see below
        with suppress(OSError), os.scandir(folder) as entries:
            folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    left: list[str] = []

    def note(_: object, where: str, error: BaseException) -> None:
        # Leave out the parents of a path that stays: they fail because they are not empty.
        has_left = any(entry.startswith(f"{where}/") for entry in left)
        if not (has_left or isinstance(error, FileNotFoundError)):
            left.append(f"{where}: {getattr(error, 'strerror', None) or error}")

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=note)
    else:
        shutil.rmtree(path, onerror=lambda what, where, info: note(what, where, info[1]))
    return tuple(left)


def _mount_points_below(path: str) -> list[str]:
    if sys.platform == "linux":
        # Not with psutil: every blocking call would wait for its import.
        with open("/proc/self/mountinfo", "rb") as table:  # noqa: PTH123
            names = [os.fsdecode(line.split(b" ")[4]) for line in table]
        points = [
            re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), name) for name in names
        ]
    else:
        import psutil

        points = [partition.mountpoint for partition in psutil.disk_partitions(all=True)]
    inside = os.path.realpath(path) + "/"
    return [point for point in points if f"{point}/".startswith(inside)]
