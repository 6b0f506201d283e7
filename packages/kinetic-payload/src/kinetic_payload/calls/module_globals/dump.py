"""Pickle the globals of the project's modules that a call reads, as far as the program may have changed them."""

from __future__ import annotations

import ast
import functools
import io
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from kinetic_payload.calls.byte_counter import TooLargeError
from kinetic_payload.calls.module_globals.reach import UsedGlobal
from kinetic_payload.calls.module_globals.restore import (
    Global,
    UntravelledGlobalError,
    kind_of,
    shown,
)
from kinetic_payload.calls.module_globals.source import Change, Source, source_of, source_of_main
from kinetic_payload.calls.rebuild import lookup, wraps

if TYPE_CHECKING:
    from kinetic_payload.calls.by_reference import Importability
    from kinetic_payload.calls.pickler import CallPickler

LARGEST: Final = 1024 * 1024
"""The most bytes of a pickle that travels although nothing shows that the program changed the value."""
_FIXED: Final = (
    *(bool, bytes, complex, float, int, str, type(None), PurePath, range, Enum, type),
    *(BuiltinFunctionType, FunctionType, MethodType, ModuleType, staticmethod, classmethod),
)
_MISSING: Final = object()


def is_mutable(value: Any) -> bool:
    """Tell whether *value* can be changed without an assignment to its name."""
    kind = type(value)  # `isinstance` would ask the object, and a proxy may have none yet.
    if issubclass(kind, tuple | frozenset):
        return any(map(is_mutable, value))
    fixed = (*_FIXED, getattr(sys.modules.get("jax"), "Array", type))
    return not (kind is object or issubclass(kind, fixed) or wraps(value))


def dump_globals(pickler: CallPickler) -> tuple[list[Global], list[str]]:
    """Return the globals that the call's code reads, and those that their values need; and warnings.

    Raises:
        UntravelledGlobalError: The program set a global, and its value cannot be pickled.
    """
    done: dict[UsedGlobal, Global | None] = {}
    warnings: list[str] = []
    while waiting := [used for used in pickler.reach.run() if used not in done]:
        for used in waiting:
            by_value = pickler.reach.found[used]
            done[used] = _dump_global(used, by_value, pickler, warnings)
    return [dumped for dumped in done.values() if dumped is not None], warnings


def _dump_global(
    used: UsedGlobal, by_value: bool, pickler: CallPickler, warnings: list[str]
) -> Global | None:
    try:
        value = lookup(used.module, used.name)
    except (
        AttributeError
    ):  # The code asks whether there is one, or the module makes it on first access.
        return None
    source = source_of(used.module)
    initial, rebound = _initial(used, value, source)
    if initial is not _MISSING and _same(initial, value):
        if source is not None and used.name in source.imported:
            pickler.reach.follow_import(*source.imported[used.name], by_value)
        return None
    if issubclass(type(value), pickler.data_type) and not by_value:
        return None  # The function that needs its path gets it as an argument.
    mutable, program = is_mutable(value), pickler.program
    # A module may fill a container, and complete an object, while it is imported.
    rebound = rebound and not (mutable and type(initial) is type(value))
    dumped, pickled, why = Global(used.module.__name__, used.name), None, ""
    if mutable and not rebound:
        pickled, why = _pickle(value, pickler, LARGEST)
        if pickled is not None and not program.is_of_this_machine(pickled):
            return dumped._replace(pickled=pickled, certain=False)
    own_changes, changes = program.changes(used, value)
    if rebound or changes or (own_changes and not mutable):
        pickled, why = _pickle(value, pickler, sys.maxsize)
        if pickled is not None:
            return dumped._replace(pickled=pickled)
        if not own_changes:
            raise UntravelledGlobalError(
                f"The call reads {used.name!r} of the module {used.module.__name__!r}. The program sets it "
                f"after the import, and its value, {kind_of(value)}, {why}.",
                hint="Pass it as an argument, create it inside the function, or set it where the module is "
                "imported.",
            )
    elif why and by_value and issubclass(type(value), dict | list | set):
        warnings.append(
            f"{used.module.__name__}.{used.name}, {kind_of(value)}, {why}, so the job has what its own import "
            "of the module makes. If the program has changed it, pass it as an argument."
        )
    # The module computes it, perhaps from the machine: so does the job.
    return dumped._replace(computed=shown(value, pickler.roots)) if by_value else None


def _pickle(value: Any, pickler: CallPickler, most: int) -> tuple[bytes | None, str]:
    """Return the pickled *value*, or why there is none of at most so many bytes."""
    stream = io.BytesIO()
    try:
        pickler.measure(value, most)
        pickler.dump_apart(value, stream)
    except TooLargeError:
        return None, f"has more than {most / 1e6:.0f} MB"
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return None, f"cannot be pickled ({type(error).__name__}: {error})"
    return stream.getvalue(), ""


def _initial(used: UsedGlobal, value: Any, source: Source | None) -> tuple[Any, bool]:
    """Return the value that the import gives, if it is known, and whether any other value was set since."""
    if source is None or "*" in source.bound:
        return _MISSING, False
    if used.name not in source.bound:
        submodule = f"{used.module.__name__}.{used.name}"
        if type(value) is ModuleType and value.__name__ == submodule:
            return value, True
        return _MISSING, "__getattr__" not in source.bound and "." not in used.name
    if len(source.bound[used.name]) > 1:
        return _MISSING, False
    (expression,) = source.bound[used.name]
    if expression is not None:
        try:
            return ast.literal_eval(expression), True
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return _MISSING, False
    if used.name in source.imported:
        origin, part = source.imported[used.name]
        module = sys.modules.get(origin)
        found = getattr(module, part, sys.modules.get(f"{origin}.{part}")) if part else module
        return found, True
    named = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return (value, True) if named == (used.module.__name__, used.name) else (_MISSING, False)


def _same(initial: Any, value: Any) -> bool:
    if initial is value:
        return True
    try:
        same = type(initial) is type(value) and bool(initial == value)
    except Exception:  # noqa: BLE001 - arrays, for instance, are not simply equal
        return False
    return same and repr(initial) == repr(value)  # 1 and 1.0 are equal.


class Program:
    """The modules of the project that the program has imported, and its script."""

    def __init__(self, main: dict[str, Any], where: Importability) -> None:
        self._main = main
        self._where = where

    def is_of_this_machine(self, pickled: bytes) -> bool:
        """Tell whether a pickled value contains a path of the project or of the home folder."""
        places = (*self._where.roots, str(Path.home()))
        return any(len(place) > 1 and place.encode() in pickled for place in places)

    def holder_of(self, value: Any) -> UsedGlobal | None:
        """Return the global of a project's module that is the object *value*, which can be changed."""
        found = self._holders.get(id(value), ()) if is_mutable(value) else ()
        found = [used for used in found if vars(used.module).get(used.name) is value]
        for used in found if len(found) > 1 else ():
            source = source_of(used.module)
            if source is not None and used.name not in source.imported:
                return used
        return found[0] if found else None

    @functools.cached_property
    def _holders(self) -> dict[int, list[UsedGlobal]]:
        holders: dict[int, list[UsedGlobal]] = {}
        for module in self._where.project_modules:
            for name, value in vars(module).items():
                if not name.startswith(("__", "@")) and is_mutable(value):
                    holders.setdefault(id(value), []).append(UsedGlobal(module, name))
        return holders

    def changes(self, used: UsedGlobal, value: Any) -> tuple[bool, bool]:
        """Tell whether functions of its own module change a global, and whether other code of the program does."""
        own = other = False
        name, mutable = used.name.rpartition(".")[2], is_mutable(value)
        for module, namespace, source in self._sources:
            # Few sources can change it, and looking for changes is slow.
            if name not in source.assigned and not (mutable and name in source.text):
                continue
            own = own or (module is used.module and used.name in source.rebound)
            for change in source.changes:
                if module is used.module and change.at_import:
                    continue
                if _changes(namespace, source, change, used, value):
                    own, other = own or module is used.module, other or module is not used.module
        return own, other

    @functools.cached_property
    def _sources(self) -> list[tuple[ModuleType | None, Mapping[str, Any], Source]]:
        found = [
            (module, vars(module), source_of(module)) for module in self._where.project_modules
        ]
        return [
            (None, self._main, source_of_main(self._main)),
            *((module, names, source) for module, names, source in found if source is not None),
        ]


def _changes(
    namespace: Mapping[str, Any], source: Source, change: Change, used: UsedGlobal, value: Any
) -> bool:
    """Tell whether *change*, in the code of *namespace*, changes a global."""
    first, *rest = change.path
    found = namespace.get(first)
    if found is None and first in source.imported_within:
        origin, part = source.imported_within[first]
        found = getattr(sys.modules.get(origin), part, None) if part else sys.modules.get(origin)
    for index, name in enumerate(rest):
        if not issubclass(type(found), ModuleType | type):
            break
        if change.assigns and index == len(rest) - 1:
            owner, _, last = used.name.rpartition(".")
            return name == last and found is (lookup(used.module, owner) if owner else used.module)
        found = vars(found).get(name)
    return found is value and is_mutable(value)
