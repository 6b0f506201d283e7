"""(child) Imports of user code: which `kinetic` it finds, and what is done right after it imports a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import kinetic_runner
from kinetic_payload.layout import WIRE_LINE


def with_kinetic(path: Sequence[str]) -> list[str]:
    """Return the import *path*, with the bundle's `kinetic` first unless the installed one is usable.

    An unrelated package has the same name. Another version of Kinetic may use another wire format, or other
    modules of `kinetic_payload`, which always comes from the bundle.
    """
    light = f"{os.path.dirname(os.path.dirname(str(kinetic_runner.__file__)))}/light"  # noqa: PTH120
    if light not in path:
        return list(path)
    try:
        origin = getattr(find_spec("kinetic"), "origin", None) or ""
        usable = origin.startswith(light)
        if not usable:
            # Read it as text: it must not be imported before it is known to be Kinetic's.
            wire = os.path.join(os.path.dirname(origin), "_wire.py")  # noqa: PTH118, PTH120
            with open(wire, encoding="utf-8") as lines:  # noqa: PTH123 - pathlib takes time
                usable = WIRE_LINE in map(str.rstrip, lines)
    except (OSError, ValueError):
        usable = False
    return list(path) if usable else [light, *(entry for entry in path if entry != light)]


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call *then* with the module *name* once it is imported, before the importer sees it."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


class _AfterImport:
    """A finder that finds nothing itself and adds a step to the loader that the others find."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then
        self._pid = os.getpid()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or os.getpid() != self._pid:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        # Without a loader it is a namespace package, not the module that is awaited.
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        exec_module = loader.exec_module

        def extended(module: ModuleType) -> None:
            # `find_spec` also serves to check whether a module is there: the hook stays until the
            # module is really executed.
            loader.exec_module = exec_module
            exec_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then(module)

        # Set on the instance, so that the spec keeps the real loader.
        loader.exec_module = extended
        return spec
