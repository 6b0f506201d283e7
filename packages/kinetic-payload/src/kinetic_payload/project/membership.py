"""`Membership`: whether a file will be in a snapshot that is not taken yet."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kinetic_payload.archives.safe_paths import unsafe_path
from kinetic_payload.project.ignore import ENVIRONMENT_MARKERS, Scope
from kinetic_payload.project.ignore_files import scope_in, top_scope
from kinetic_payload.project.tree import Exclusions, Place, within


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder in a snapshot: the rules inside it, and the places on the way to it."""

    scope: Scope
    places: tuple[Place, ...]
    """The root, and the folders outside of it that links led to."""


class Membership:
    """Decide for single files whether a snapshot of *root* will contain them."""

    def __init__(
        self, root: Path, *, exclude: Iterable[Path] = (), no_defaults: bool = False
    ) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100
        self._top = Place(os.path.realpath(self._root), "")
        self._exclude = Exclusions(exclude)
        self._folders: dict[str, _Folder | None] = {}
        self._scope = top_scope(Path(self._root), no_defaults=no_defaults)

    def __call__(self, path: Path) -> bool:
        """Return whether the file *path* itself will be in the snapshot."""
        plain = os.path.abspath(path)  # noqa: PTH100
        real = os.path.realpath(plain)
        if not os.path.isfile(real):  # noqa: PTH113
            return False
        lexical = within(plain, Place(self._root, ""))
        actual = within(real, self._top)
        return any(place and self._holds(place) for place in (lexical, actual))

    def _holds(self, path: str) -> bool:
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        if folder is None or unsafe_path(path) is not None:
            return False
        full = f"{self._root}/{path}"
        real = os.path.realpath(full)
        # A link that stays a link: the snapshot contains the file under its real name.
        if self._exclude.has_real(real) or (
            os.path.islink(full)  # noqa: PTH114
            and (
                _leads_inside(real, folder)
                or folder.scope.leaves_out_goal(name, real, is_folder=False)
            )
        ):
            return False
        return folder.scope.leaves_out(name, is_folder=False) is None

    def _folder(self, path: str) -> _Folder | None:
        """Return the folder at *path*, or None if it is left out."""
        if path not in self._folders:
            self._folders[path] = self._read_folder(path)
        return self._folders[path]

    def _read_folder(self, path: str) -> _Folder | None:
        full = f"{self._root}/{path}"
        try:
            names = set(os.listdir(full))  # noqa: PTH208
        except OSError:
            return None
        if path == "":
            return _Folder(scope_in(self._scope, full, "", names), (self._top,))
        above, _, name = path.rpartition("/")
        folder = self._folder(above)
        real = os.path.realpath(full)
        if (
            folder is None
            or unsafe_path(path) is not None
            or self._exclude.has_real(real)
            or folder.scope.leaves_out(name, is_folder=True)
            or not ENVIRONMENT_MARKERS.isdisjoint(names)
        ):
            return None
        places = folder.places
        if os.path.islink(full):  # noqa: PTH114
            # Git treats a link as a file; here it is a folder if its target is taken in its place.
            if (
                folder.scope.leaves_out(name, is_folder=False)
                or _leads_inside(real, folder)
                or folder.scope.leaves_out_goal(name, real, is_folder=True)
                or any(within(place.real, Place(real, "")) is not None for place in places)
            ):
                return None
            places = (*places, Place(real, path))
        return _Folder(scope_in(folder.scope.inner(name), full, f"{path}/", names), places)


def _leads_inside(real: str, folder: _Folder) -> bool:
    return any(within(real, place) is not None for place in folder.places)
