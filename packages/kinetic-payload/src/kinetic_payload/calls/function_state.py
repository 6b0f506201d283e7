"""The state of a function that travels by value: all but its code."""

from __future__ import annotations

from contextlib import suppress
from types import CellType, FunctionType
from typing import Any, Final

from cloudpickle import cloudpickle as internals

from kinetic_payload.calls.annotations import CLASS_NAMESPACE
from kinetic_payload.calls.code import globals_of_classes_in, mentions_in

_SLOTS: Final = (
    "__name__",
    "__qualname__",
    "__kwdefaults__",
    "__defaults__",
    "__module__",
    "__doc__",
    "__closure__",
)
_VALUE: Final = 1
"""`annotationlib.Format.VALUE`: the argument of a function that computes annotations."""


def function_state(function: FunctionType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of *function*, and its slots with the globals that it reads, for cloudpickle's setter.

    cloudpickle overlooks the globals that classes within the function read, and it evaluates annotations. This
    state contains the function that computes the annotations instead, unless they were replaced.
    """
    code, cells = function.__code__, function.__closure__ or ()
    names = (*internals._extract_code_globals(code), *globals_of_classes_in(code))
    used = {name: function.__globals__[name] for name in names if name in function.__globals__}
    reachable = [*used.values(), *map(internals._get_cell_contents, cells)]
    slots = {name: getattr(function, name) for name in _SLOTS}
    slots["__globals__"] = used
    slots["_cloudpickle_submodules"] = internals._find_imported_submodules(code, reachable)
    annotate = getattr(function, "__annotate__", None)
    replaced = annotate is None
    if annotate is not None:
        with suppress(Exception):  # Annotations may be any expression.
            replaced = bool(function.__annotations__ != annotate(_VALUE))
    if replaced:
        slots["__annotations__"] = function.__annotations__
    else:
        slots["__annotate__"] = annotate
    if CLASS_NAMESPACE in code.co_freevars:
        slots["__closure__"] = tuple(
            _namespace_cell(function, cell) if name == CLASS_NAMESPACE else cell
            for name, cell in zip(code.co_freevars, cells, strict=True)
        )
    if getattr(function, "__type_params__", ()):
        slots["__type_params__"] = function.__type_params__  # type: ignore[attr-defined]
    return dict(vars(function)), slots


def _namespace_cell(function: FunctionType, cell: CellType) -> CellType:
    """Return a cell with the attributes of the enclosing class that *function* may read."""
    try:
        namespace = cell.cell_contents
    except ValueError:
        return CellType()
    names = dict.fromkeys(mentions_in(function.__code__))
    return CellType({name: namespace[name] for name in names if name in namespace})
