"""What the program may have changed in the project's modules since their import, whoever reads it in the job."""

from __future__ import annotations

import ast
import enum
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from kinetic_payload.calls.by_reference import OURS, Importability, is_main
from kinetic_payload.calls.module_globals.initial_values import (
    Kind,
    assigned_in,
    imported_in,
    initial_of,
    is_declared,
    is_kept,
    literals_in,
)
from kinetic_payload.calls.module_globals.restore import UsedGlobal, has_state, same_literal
from kinetic_payload.calls.rebuild import lookup


class Changes:
    """The objects of the project's modules in this process, and what the entry script set in these modules."""

    def __init__(
        self,
        where: Importability,
        main: dict[str, Any],
        data_type: type | tuple[type, ...],
    ) -> None:
        self.where = where
        self.main = main
        """The globals of the entry script."""
        self.data_type = data_type
        folders = "|".join(map(re.escape, where.roots))
        self.folder = re.compile(rf"(?:{folders})(?![\w.-])") if folders else None
        """The project's folder in a text; None if no files are shipped."""
        self._modules = {
            id(module): module
            # A copy: other threads may import meanwhile.
            for name, module in sys.modules.copy().items()
            # Any access to an attribute would import a module that is imported lazily.
            if issubclass(type(module), ModuleType) and type(module).__module__ != "importlib.util"
            if isinstance(file := vars(module).get("__file__"), str)
            and where.source(file) is not None
            and not (is_main(name) or name.partition(".")[0] in OURS)
            and where.importable(name)
        }
        self.objects: dict[int, tuple[Any, UsedGlobal]] = {}
        """By identity: the objects with a state that the project's modules made, and the global of each."""
        for module in self._modules.values():
            for name in assigned_in(module):
                value = vars(module).get(name)
                kind = type(value)
                # A `Data` is a path in the job, and what depends on the machine is the job's own there.
                if (
                    has_state(kind)
                    and not issubclass(kind, data_type)
                    and initial_of(module, name).kind is not Kind.MACHINE
                ):
                    used = UsedGlobal(module, name, assigned=False)
                    self.objects.setdefault(id(value), (value, used))
        self.evident: dict[tuple[str, str], bool] = {}
        """Module and name of what the entry script assigns; whether it gives the name another object."""
        self._rebound: set[tuple[str, str]] = set()
        for module in self._modules.values():
            for name, origin in imported_in(module).items():
                there = getattr(sys.modules.get(origin[0]), "__dict__", {}).get(origin[1])
                if vars(module).get(name) is not there and origin[0] != module.__name__:
                    self._rebound |= {(module.__name__, name), origin}
        for path, rebinds in (row for text in _texts_of(main) for row in _assigned_in(text)):
            self._note(path, rebinds)

    def rebinds(self, used: UsedGlobal) -> bool:
        """Tell whether the global may be another object than the one of the import."""
        declared = is_declared(used.module, used.name)
        return declared or used.key in self._rebound or self.evident.get(used.key, False)

    def _note(self, path: tuple[str, ...], rebinds: bool) -> None:
        holder = self.main.get(path[0])
        if id(holder) in self.objects:
            used = self.objects[id(holder)][1]
            self.evident.setdefault(used.key, False)
        rest = list(path[1:])
        while rest and id(holder) in self._modules:
            name = rest.pop(0)
            found = vars(holder).get(name)
            if not rest or id(found) not in self._modules:
                if rest and isinstance(found, type):
                    name = f"{name}.{rest.pop(0)}"
                key = self._modules[id(holder)].__name__, name
                self.evident[key] = self.evident.get(key, False) or (rebinds and not rest)
            holder = found

    def changed(self) -> Iterator[UsedGlobal]:
        """Iterate over the globals that the program may have changed, whoever reads them in the job.

        These are literals that differ now, objects that are globals of the script as well, and what it assigns.
        """
        for module in self._modules.values():
            for name, literal in literals_in(module).items():
                with suppress(AttributeError):
                    found = lookup(module, name)
                    if not (
                        is_kept(module, name)
                        or same_literal(literal, found)
                        or ("." in name and hasattr(type(found), "__get__"))
                        or issubclass(type(found), enum.Enum)
                    ):
                        yield UsedGlobal(module, name, assigned=False, read=False)
        for value in list(self.main.values()):
            if id(value) in self.objects:
                yield self.objects[id(value)][1]._replace(read=False)
        for module_name, name in self.evident:
            with suppress(AttributeError):  # The script may have deleted it.
                module = sys.modules[module_name]
                lookup(module, name)
                yield UsedGlobal(module, name, assigned=False, read=False)


def _texts_of(main: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the sources of the entry script, or the cells of a notebook."""
    file = main.get("__file__")
    if isinstance(file, str):
        with suppress(OSError, ValueError):
            yield Path(file).read_text(encoding="utf-8")
    elif type(cells := main.get("In")) is list:
        yield from (cell for cell in cells if type(cell) is str)


@functools.lru_cache(1000)
def _assigned_in(text: str) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """Return the paths, such as `("config", "rate")`, that *text* assigns, and whether as a whole."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            path: list[str] = []
            rebinds = True
            part: ast.expr = node
            while isinstance(part, ast.Attribute | ast.Subscript):
                if isinstance(part, ast.Subscript):
                    path, rebinds = [], False
                else:
                    path.insert(0, part.attr)
                part = part.value
            if isinstance(part, ast.Name):
                found.append(((part.id, *path), rebinds))
    return tuple(found)
