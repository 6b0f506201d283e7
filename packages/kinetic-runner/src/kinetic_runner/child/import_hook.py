"""(child) Do something right after user code imports a module; import nothing by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


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
        for finder in list(sys.meta_path):
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._extend(spec)
                return spec
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        if loader is None:  # A namespace package: not the module we wait for.
            return
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
