"""`Shipping`: whether a single file will be in a snapshot, asked before one is taken."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kinetic_payload.archive import unsafe_path
from kinetic_payload.ignore import ENVIRONMENT_MARKERS, Scope
from kinetic_payload.ignore_files import scope_in, top_scope
from kinetic_payload.treewalk import Place, within


class Shipping:
    """Tells of single files whether a snapshot of *root* will hold them, without taking one."""

    def __init__(
        self, root: Path, *, exclude: Iterable[Path] = (), no_defaults: bool = False
    ) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100
        self._exclude = frozenset(os.path.realpath(path) for path in exclude)
        self._scopes: dict[str, Scope | None] = {}
        self._top = top_scope(Path(self._root), no_defaults=no_defaults)

    def __call__(self, path: Path) -> bool:
        """Tell whether the very file *path* will be in it."""
        plain = os.path.abspath(path)  # noqa: PTH100
        real = os.path.realpath(plain)
        if not os.path.isfile(real):  # noqa: PTH113
            return False
        lexical = within(plain, Place(self._root, ""))
        actual = within(real, Place(os.path.realpath(self._root), ""))
        return any(place and self._holds(place) for place in (lexical, actual))

    def _holds(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        scope = self._scope(folder)
        if scope is None or unsafe_path(path) is not None:
            return False
        full = f"{self._root}/{path}"
        if os.path.realpath(full) in self._exclude or self._stays_a_link(full):
            return False
        return scope.leaves_out(name, is_folder=False) is None

    def _stays_a_link(self, full: str) -> bool:
        # Then the snapshot holds a link, and the file under its real name.
        top = Place(os.path.realpath(self._root), "")
        return os.path.islink(full) and within(os.path.realpath(full), top) is not None  # noqa: PTH114

    def _scope(self, folder: str) -> Scope | None:
        """Return what decides inside *folder*, with its own ignore files; None if it is left out."""
        if folder not in self._scopes:
            self._scopes[folder] = self._judged(folder)
        return self._scopes[folder]

    def _judged(self, folder: str) -> Scope | None:
        real = f"{self._root}/{folder}"
        try:
            names = set(os.listdir(real))  # noqa: PTH208
        except OSError:
            return None
        if folder == "":
            return scope_in(self._top, real, "", names)
        above, _, name = folder.rpartition("/")
        scope = self._scope(above)
        if (
            scope is None
            or os.path.realpath(real) in self._exclude
            or self._stays_a_link(real)
            # A link is a file to git, and a folder where what it leads to travels in its place.
            or (os.path.islink(real) and scope.leaves_out(name, is_folder=False))  # noqa: PTH114
            or scope.leaves_out(name, is_folder=True)
            or not ENVIRONMENT_MARKERS.isdisjoint(names)
        ):
            return None
        return scope_in(scope.inner(name), real, f"{folder}/", names)
