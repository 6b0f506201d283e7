"""By reference or by value: which modules the worker will find, given the paths that are shipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from kinetic_payload.distributions import DISTRIBUTIONS

OURS: Final = frozenset(DISTRIBUTIONS)
"""Kinetic's own packages: the bundle contains them, wherever the client has them installed."""

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_STANDARD: Final = tuple(
    {
        os.path.dirname(os.__file__),  # noqa: PTH120 - compared as text, thousands of times
        os.path.realpath(os.path.dirname(os.__file__)),  # noqa: PTH120
        f"{sys.base_exec_prefix}/{sys.platlibdir}/python{sys.version_info[0]}.{sys.version_info[1]}",
    }
)


def is_main(name: str) -> bool:
    """Tell whether *name* is that of the entry module, also in a process that it spawned."""
    return name in {"__main__", "__mp_main__"}


class Importability:
    """Decides for each module whether the worker would import the same file.

    *paths* are the entries of `sys.path` below *root*; *ships* tells whether a file is in the snapshot.
    Without a *root* there is no snapshot.
    """

    def __init__(
        self, root: Path | None, paths: Sequence[str], ships: Callable[[Path], bool]
    ) -> None:
        self._root = root or Path()
        self.roots = tuple(dict.fromkeys((str(root), os.path.realpath(root)))) if root else ()
        self._ships = ships
        self._known: dict[str, bool] = {}
        self._sources: dict[str, str | None] = {}
        self._installations: dict[str, bool] = {}
        self._project = [str(self._root / path) for path in paths]
        self._rest = [entry for entry in sys.path if _is_installed(entry)]
        self.late_paths: list[str] = []
        """Entries for the end of the worker's `sys.path`, for modules that an import hook found here."""

    def importable(self, name: str) -> bool:
        """Tell whether the module *name* travels by reference."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._decide(name)
        return known

    def source(self, filename: str) -> str | None:
        """Return the path of the source *filename* below the root, if the snapshot has it."""
        if filename not in self._sources:
            found = None
            for root in self.roots:
                if filename.startswith(root + os.sep):
                    relative = filename[len(root) + 1 :]
                    if self._ships(self._root / relative):
                        found = Path(relative).as_posix()
                    break
            self._sources[filename] = found
        return self._sources[filename]

    def _decide(self, name: str) -> bool:
        from cloudpickle import list_registry_pickle_by_value

        if is_main(name):
            return False
        if name.partition(".")[0] in OURS:
            return True
        module = sys.modules.get(name)
        by_value = list_registry_pickle_by_value()
        if module is None or any(f"{name}.".startswith(f"{prefix}.") for prefix in by_value):
            return False
        file = getattr(module, "__file__", None)
        if file is None:
            origin = getattr(getattr(module, "__spec__", None), "origin", None)
            if name in sys.builtin_module_names or origin in ("built-in", "frozen"):
                return True
            folders = [str(folder) for folder in getattr(module, "__path__", ())]
            if folders:  # a namespace package
                return all(map(_is_installed, folders)) or self._worker_finds(name, None)
            # Code created the module: importing its parent creates it again.
            parent = name.rpartition(".")[0]
            return bool(parent) and self.importable(parent)
        if _is_installed(file) or self._worker_finds(name, file):
            return True
        base = _import_folder(name, file)
        if base is None:
            return False
        if self._worker_finds_late(name, file, base):
            return True
        # `pip install --target` may have filled a folder anywhere.
        if base not in self.roots and base not in self._installations:
            self._installations[base] = any(Path(base).glob("*.dist-info"))
        return self._installations.get(base, False)

    def _worker_finds(self, name: str, file: str | None, *, late: Sequence[str] = ()) -> bool:
        """Tell whether the worker, searching for the module *name*, finds *file*."""
        entries: Sequence[str] = [*self._project, *self._rest, *late]
        parts = name.split(".")
        origin = None
        for count in range(1, len(parts) + 1):
            origin, entries = _find(".".join(parts[:count]), entries)
            if origin is None and not entries:
                return False
            if origin is not None and not (self._ships(Path(origin)) or _is_installed(origin)):
                return False
        if origin is None or file is None:
            return origin is file
        with suppress(OSError):
            return os.path.samefile(origin, file)  # noqa: PTH121
        return False

    def _worker_finds_late(self, name: str, file: str, base: str) -> bool:
        # An editable install may use an import hook instead of a path entry. Such a hook is called
        # after all paths were searched, so the folder *base* comes last on the worker.
        for root in self.roots:
            if base == root or base.startswith(root + os.sep):
                relative = Path(os.path.relpath(base, root)).as_posix()
                entry = str(self._root / relative)
                if not self._worker_finds(
                    name, file, late=[*(str(self._root / path) for path in self.late_paths), entry]
                ):
                    return False
                if relative not in self.late_paths:
                    self.late_paths.append(relative)
                return True
        return False


def _is_installed(path: str) -> bool:
    if not _INSTALLED.isdisjoint(path.replace("\\", "/").split("/")):
        return True
    return path.startswith(tuple(folder + os.sep for folder in _STANDARD)) or path in _STANDARD


def _find(name: str, entries: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the file and the search path of the module *name*, as an import that searches *entries* finds it."""
    try:
        spec = PathFinder.find_spec(name, entries)
    except KeyError:  # It is a folder without `__init__.py`, and its parent is not imported.
        spec = None
    if spec is None:
        return None, []
    return spec.origin, list(spec.submodule_search_locations or ())


def _import_folder(name: str, file: str) -> str | None:
    """Return the folder that makes *file* importable as the module *name*; None if the path does not fit."""
    path = Path(os.path.realpath(file))
    path = path.parent if path.stem == "__init__" else path.with_name(path.name.partition(".")[0])
    parts = name.split(".")
    if list(path.parts[-len(parts) :]) != parts:
        return None
    return str(path.parents[len(parts) - 1])
