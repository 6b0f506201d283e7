"""Set globals of a job's modules to their values at the call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final, NamedTuple

from kinetic_payload.calls.rebuild import builtin_base, imported, lookup, project_paths
from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError

_MISSING: Final = object()
_FEW: Final = 1000
_STATE: Final = ("__getstate__", "__reduce__", "__reduce_ex__", "__setstate__", "__slots__")
"""Attributes of classes whose objects have other state than `__dict__`."""


class UntravelledGlobalError(PayloadError):
    """A global of an imported module was set since the import, and cannot be pickled."""


class Global(NamedTuple):
    """A global of an imported module at the call."""

    module: str
    name: str
    """For an attribute of a class, `Class.attribute`."""
    pickled: bytes | None = None
    certain: bool = True
    """Whether the program certainly changed it; otherwise the job's import may give an equal value."""
    computed: str = ""
    """For a value that the job computes itself: what `shown` returns at the call."""


def restore(wanted: Sequence[Global], written_by: str) -> list[str]:
    """Set globals of modules here to their values at the call; return a warning for each that differs.

    Raises:
        Exception: A value that the program set cannot be unpickled, or a module cannot be imported.
    """
    for saved in wanted:
        # First all of them: one may compute its globals from those of another.
        imported(saved.module)
    return [warning for saved in wanted for warning in _restore(saved, written_by)]


def _restore(saved: Global, written_by: str) -> Iterator[str]:
    path, _, name = saved.name.rpartition(".")
    holder: Any = lookup(imported(saved.module), path) if path else imported(saved.module)
    if saved.pickled is not None:
        try:
            value = load(BytesIO(saved.pickled), written_by)
        except Exception as error:
            if saved.certain:
                raise
            yield (
                f"{saved.module}.{saved.name} is what the import of the module made here: its value at the call "
                f"cannot be read here ({type(error).__name__}: {error})."
            )
        else:
            _put(holder, name, value)
        return
    here = shown(vars(holder).get(name), project_paths())
    if here != saved.computed:
        yield (
            f"{saved.module}.{saved.name} is computed where the module is imported: here {here}, at the call "
            f"{saved.computed}. Pass it as an argument if the job needs the value of the call."
        )


def _put(holder: Any, name: str, value: Any) -> None:
    """Make *value* the value of a global: in the same object if possible, because others may refer to it."""
    own = vars(holder).get(name, _MISSING)
    if type(own) is type(value):
        if isinstance(own, dict | set):
            own.clear()
            own.update(value)
            return
        if isinstance(own, list):
            own[:] = value
            return
        if _is_plain(type(own)):
            vars(own).clear()
            vars(own).update(vars(value))
            return
    setattr(holder, name, value)
    if own is not _MISSING and not isinstance(own, str | bytes | int | float | complex | None):
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and file.startswith(project_paths()):
                for other in [other for other, found in vars(module).items() if found is own]:
                    setattr(module, other, value)


def _is_plain(kind: type) -> bool:
    """Tell whether the state of objects of *kind* is their `__dict__`."""
    defined = {name for base in kind.__mro__[:-1] for name in vars(base)}
    return builtin_base(kind) is object and defined.isdisjoint(_STATE)


def kind_of(value: Any) -> str:
    """Describe *value* in words."""
    kind = type(value)  # `isinstance` would ask the object, and a proxy may have none yet.
    if kind in (bool, int, float, type(None)):
        return repr(value)
    if issubclass(kind, ModuleType):
        return f"the module {value.__name__}"
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    sized = issubclass(kind, dict | list | set | tuple | str | bytes)
    size = f" of {len(value)}" if sized else ""
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{size}"


def shown(value: Any, project: Sequence[str]) -> str:
    """Return *value* as a text that is the same for equal values, with the place of the *project* left out."""
    kind = type(value)
    if kind is tuple and len(value) < _FEW:
        return f"({', '.join(shown(part, project) for part in value)})"
    short = kind in (str, bytes) and len(value) < _FEW
    plain = short or kind in (int, float, complex) or issubclass(kind, PurePath)
    text = repr(value) if plain else ""
    for root in project:
        text = text.replace(root, "<project>")
    return text or kind_of(value)
