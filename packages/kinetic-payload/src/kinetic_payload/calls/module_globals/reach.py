"""The globals of the project's modules that the code of a call reads, by value and by reference alike."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import EnumMeta
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from kinetic_payload.calls.code import paths_in
from kinetic_payload.calls.module_globals.source import Source, source_of, source_of_main
from kinetic_payload.calls.rebuild import wraps

_LARGEST: Final = 1000
"""The most members of a container, such as a registry of functions, that are followed."""


class UsedGlobal(NamedTuple):
    """A global of an imported module of the project."""

    module: ModuleType
    name: str
    """For an attribute of a class, `Class.attribute`."""


class Reach:
    """Follows code from function to function, by the names and attributes that it reads."""

    def __init__(self, main: dict[str, Any], is_of_project: Callable[[object], bool]) -> None:
        self._main = main
        self._is_of_project = is_of_project
        self._waiting: list[Any] = []
        self._seen: dict[int, Any] = {}
        """By id: kept, so that no other object gets the same id."""
        self.found: dict[UsedGlobal, bool] = {}
        """In the order in which they were found, and whether code by value reads them."""

    def follow(self, obj: Any) -> None:
        """Let `run` follow *obj*, if it is a function or class that the job imports from the project, or leads to one."""
        self._waiting.append(obj)

    def run(self) -> dict[UsedGlobal, bool]:
        """Follow all that waits, and return what was found."""
        while self._waiting:
            obj = self._waiting.pop()
            # `isinstance` would ask the object, and a proxy may have none yet.
            kind = type(obj)
            if issubclass(kind, FunctionType | type):
                if id(obj) not in self._seen and self._is_of_project(obj):
                    self._seen[id(obj)] = obj
                    if kind is FunctionType:
                        self.read(obj, by_value=False)
                    else:
                        self._waiting += (*obj.__bases__, *vars(obj).values())
            elif issubclass(kind, staticmethod | classmethod | MethodType):
                self.follow(obj.__func__)
            elif issubclass(kind, property):
                self._waiting += (obj.fget, obj.fset, obj.fdel)
            elif issubclass(kind, partial):
                self.follow(obj.func)
            elif kind in (dict, list, tuple):
                parts = list(obj.values() if kind is dict else obj)[:_LARGEST]
                self._waiting += [part for part in parts if hasattr(type(part), "__call__")]  # noqa: B004
            else:
                self.follow(kind)
            if wraps(obj):
                self.follow(obj.__wrapped__)
        return self.found

    def read(self, function: FunctionType, *, by_value: bool) -> None:
        """Note the globals that *function* reads, and follow them."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        known = dict(_contents(cells))
        module = sys.modules.get(str(function.__globals__.get("__name__")))
        holder = module if module and vars(module) is function.__globals__ else None
        for name, *attributes in paths_in(function.__code__):
            if name in known:
                self._attributes(known[name], attributes, by_value)
            elif name in function.__globals__:
                if holder is not None and self._is_of_project(holder):
                    self._attributes(holder, [name, *attributes], by_value)
                else:
                    self._attributes(function.__globals__[name], attributes, by_value)
            elif not hasattr(builtins, name):
                source = self._source(function, holder)
                if source is not None and name in source.imported_within:
                    self.follow_import(*source.imported_within[name], by_value, attributes)

    def follow_import(
        self, module: str, name: str, by_value: bool, attributes: Sequence[str] = ()
    ) -> None:
        """Note the global *name* of *module*, or its submodule, whose *attributes* are read."""
        holder = sys.modules.get(f"{module}.{name}" if name else module)
        names = [] if holder is not None else [name]
        self._attributes(holder or sys.modules.get(module), [*names, *attributes], by_value)

    def _source(self, function: FunctionType, holder: ModuleType | None) -> Source | None:
        if function.__globals__ is self._main:
            return source_of_main(self._main)
        return source_of(holder) if holder is not None and self._is_of_project(holder) else None

    def _attributes(self, holder: Any, names: list[str], by_value: bool) -> None:
        """Note the global at the end of the path *names* in *holder*, a module or a class."""
        if issubclass(type(holder), ModuleType) and names:
            name, *rest = names
            if not self._is_of_project(holder) or name.startswith("__"):
                return
            value = vars(holder).get(name)
            self._note(UsedGlobal(holder, name), value, by_value)
            self._attributes(value, rest, by_value)
        elif issubclass(type(holder), type) and not isinstance(holder, EnumMeta) and names:
            owner = next((base for base in holder.__mro__ if names[0] in vars(base)), None)
            if owner is not None and self._is_of_project(owner) and not names[0].startswith("__"):
                value = vars(owner)[names[0]]
                if not hasattr(type(value), "__get__"):  # A method, a property or a slot
                    used = UsedGlobal(
                        sys.modules[owner.__module__], f"{owner.__qualname__}.{names[0]}"
                    )
                    self._note(used, value, by_value)

    def _note(self, used: UsedGlobal, value: Any, by_value: bool) -> None:
        self.found[used] = self.found.get(used, False) or by_value
        self.follow(value)


def _contents(cells: Any) -> Iterator[tuple[str, Any]]:
    for name, cell in cells:
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
