"""`Exclusions`: paths that are left out of a tree, identified by device and inode.

On a file system that ignores case or Unicode normalisation (APFS) one folder has several paths, and
a bind mount gives it another path. A comparison of paths alone would miss some of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from unicodedata import normalize


class Exclusions:
    """Files and folders that are left out, under any of their paths."""

    def __init__(self, paths: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._real = frozenset(os.path.realpath(path) for path in paths)
        self._inodes: dict[int, list[tuple[int, str]]] = {}
        """Devices and folded names, by inode."""
        for path in self._real:
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue  # A path that does not exist has no other names.
            same = self._inodes.setdefault(status.st_ino, [])
            same.append((status.st_dev, _folded(path)))

    def has(self, path: str, inode: int, status: Callable[[], os.stat_result]) -> bool:
        """Return whether *path*, in a real folder, is excluded.

        Args:
            inode: The inode that the folder lists, which costs nothing.
            status: Called only if the inode is that of an excluded path.
        """
        if path in self._real:
            return True
        candidates = self._inodes.get(inode)
        if not candidates:
            return False
        try:
            found = status()
        except OSError:
            return False
        # Another hard link is a different file for the user: only the given name is left out.
        many = not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1
        return any(
            device == found.st_dev and (not many or name == _folded(path))
            for device, name in candidates
        )

    def has_real(self, path: str) -> bool:
        """Return whether the real path *path* is excluded."""
        if not self._inodes:
            return path in self._real
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            return path in self._real
        return self.has(path, status.st_ino, lambda: status)


def _folded(path: str) -> str:
    return normalize("NFC", os.path.basename(path)).casefold()  # noqa: PTH119
