"""`Membership`: whether a file will be in a snapshot that is not taken yet."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kinetic_payload.project.ignore_files import top_scope
from kinetic_payload.project.roots import composed_path
from kinetic_payload.project.tree import Exclusions, Folder, Place, Walker, within


class Membership:
    """Decide for single files whether a snapshot of *root* will contain them.

    Only the folders on the way to these files are read, each once.
    """

    def __init__(
        self, root: Path, *, exclude: Iterable[Path] = (), no_defaults: bool = False
    ) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100
        self._real = os.path.realpath(self._root)
        self._exclude = Exclusions(exclude)
        self._scope = top_scope(Path(self._root), no_defaults=no_defaults)
        self._walked: dict[str, Walker | None] = {}
        """By path of a folder: what it holds; None if it is left out."""

    def __call__(self, path: Path) -> bool:
        """Return whether the file *path* itself will be in the snapshot."""
        plain = os.path.abspath(path)  # noqa: PTH100
        lexical = within(plain, Place(self._root, ""))
        actual = within(os.path.realpath(plain), Place(self._real, ""))
        return any(place and self._holds(place) for place in (lexical, actual))

    def _holds(self, path: str) -> bool:
        path = composed_path(self._root, path)
        walker = self._walk(path.rpartition("/")[0])
        return walker is not None and any(file.path == path for file in walker.tree.files)

    def _walk(self, path: str) -> Walker | None:
        """Read the folder at *path* alone."""
        if path not in self._walked:
            if path:
                above = self._walk(path.rpartition("/")[0])
                found = above.todo if above is not None else ()
                folder = next((inner for inner in found if inner.path == path), None)
            else:
                folder = Folder(self._real, "", self._scope, (Place(self._real, ""),))
            walker = None
            if folder is not None:
                walker = Walker(everything=False, exclude=self._exclude)
                walker.take(folder)
            self._walked[path] = walker
        return self._walked[path]
