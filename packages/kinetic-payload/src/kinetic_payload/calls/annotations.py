"""Annotations of functions and classes: from Python 3.14 on a function computes them when it is asked.

What they name may never be there, such as what is imported for type checkers only.
"""

from __future__ import annotations

import typing
from contextlib import suppress
from importlib import import_module
from types import FunctionType
from typing import Any, Final

CLASS_NAMESPACE: Final = "__classdict__"
"""The variable in which functions of a class that compute annotations find its attributes."""


def is_annotate(function: FunctionType) -> bool:
    """Tell whether the compiler made *function* to compute annotations."""
    return function.__name__ == "__annotate__"


def annotations_of(function: FunctionType) -> dict[str, Any]:
    """Return the annotations of *function*, as far as what they name is there."""
    try:
        return function.__annotations__
    except Exception:  # noqa: BLE001 - any expression may stand there
        return _as_far_as_possible(getattr(function, "__annotate__", None), function)


def own_annotations(cls: type) -> dict[str, Any]:
    """Return the annotations of *cls* alone, as far as what they name is there."""
    own = vars(cls)
    for name in ("__annotations__", "__annotations_cache__"):
        if isinstance(own.get(name), dict):
            return dict(own[name])
    return _as_far_as_possible(own.get("__annotate_func__"), cls)


def value_in(named: Any, part: str) -> Any:
    """Return the *part* (`value`, `bound`, …) of a type alias or a type parameter, as far as its names are there.

    Raises:
        Exception: Something is not there, and this is a Python before 3.14.
    """
    try:
        return getattr(named, f"__{part}__")
    except Exception:
        evaluate = getattr(named, f"evaluate_{part}", None)
        if evaluate is None:
            raise
        library = import_module("annotationlib")
        # Without an owner: what stands for a name would lead back to what is made from it.
        return library.call_evaluate_function(evaluate, library.Format.FORWARDREF)


def reduce_forward_reference(reference: Any) -> Any:
    """Return how to make what stands for a name that was not there again, from Python 3.14 on."""
    owner, module = reference.__owner__, reference.__forward_module__
    # attrs has made another class of the owner, one with slots, and keeps a weak reference to it.
    slotted = getattr(owner, "__attrs_base_of_slotted__", None)
    owner = owner if slotted is None else slotted() or owner
    if owner is None and module is None and reference.__globals__:
        module = reference.__globals__.get("__name__")
    named = {
        "module": module,
        "owner": owner,
        "is_argument": reference.__forward_is_argument__,
        "is_class": reference.__forward_is_class__,
    }
    cells = reference.__cell__
    if isinstance(cells, dict):  # The attributes of a class are its owner's.
        cells = {name: cell for name, cell in cells.items() if name != CLASS_NAMESPACE}
    arguments = reference.__forward_arg__, named, cells, reference.__extra_names__
    return forward_reference, arguments


def forward_reference(text: str, named: dict[str, Any], cells: Any, extra_names: Any) -> Any:
    """Make what stands for a name that was not there. Pickles name this function, so its name stays."""
    made: Any = typing.ForwardRef(text, **named)
    made.__cell__, made.__extra_names__ = cells, extra_names
    return made


def _as_far_as_possible(annotate: Any, owner: Any) -> dict[str, Any]:
    if annotate is None:
        return {}
    library = import_module("annotationlib")
    with suppress(Exception):  # Any expression may stand there.
        found = library.call_annotate_function(annotate, library.Format.FORWARDREF, owner=owner)
        return dict(found)
    return {}
