"""The state of a function that travels by value: all but its code."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any, Final

from cloudpickle import cloudpickle as internals

from kinetic_payload.calls.annotations import CLASS_NAMESPACE
from kinetic_payload.calls.code import globals_of_classes_in, mentions_in

_VALUE: Final = 1
"""`annotationlib.Format.VALUE`: the argument of a function that computes annotations."""


def function_state(function: FunctionType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes of *function*, and its slots with the globals that it reads.

    cloudpickle overlooks the globals that classes within the function read, and it evaluates annotations. This
    state contains the function that computes the annotations instead, unless they were replaced.
    """
    twin = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    twin.__module__ = function.__module__
    twin.__doc__ = function.__doc__
    vars(twin).update(vars(function))
    state, slots = internals._function_getstate(twin)
    for name in globals_of_classes_in(function.__code__):
        if name in function.__globals__:
            slots["__globals__"][name] = function.__globals__[name]
    annotate = getattr(function, "__annotate__", None)
    if annotate is None or _were_replaced(function, annotate):
        slots["__annotations__"] = function.__annotations__
    else:
        del slots["__annotations__"]
        slots["__annotate__"] = annotate
    if function.__closure__ is not None:
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        slots["__closure__"] = tuple(
            _namespace_cell(function, cell) if name == CLASS_NAMESPACE else cell
            for name, cell in cells
        )
    if getattr(function, "__type_params__", ()):
        slots["__type_params__"] = function.__type_params__  # type: ignore[attr-defined]
    return state, slots


def _were_replaced(function: FunctionType, annotate: Any) -> bool:
    """Tell whether the annotations of *function* differ from those that *annotate* computes."""
    try:
        return bool(function.__annotations__ != annotate(_VALUE))
    except Exception:  # noqa: BLE001 - annotations may be any expression
        return False


def _namespace_cell(function: FunctionType, cell: CellType) -> CellType:
    """Return a cell with the attributes of the enclosing class that *function* may read."""
    try:
        namespace = cell.cell_contents
    except ValueError:
        return CellType()
    names = dict.fromkeys(mentions_in(function.__code__))
    return CellType({name: namespace[name] for name in names if name in namespace})
