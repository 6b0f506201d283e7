"""Reducers of objects that pickle reduces wrongly, or not at all, whichever way they travel."""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import sys
import weakref
from collections.abc import Callable
from types import MemberDescriptorType
from typing import Any, Final

from kinetic_payload.calls.annotations import reduce_forward_reference
from kinetic_payload.calls.rebuild import bare_error, builtin_base, fill_error

_NOT_STATE: Final = frozenset({"__suppress_context__", "exceptions", "message", "obj"})
"""Attributes of builtin exceptions that are not part of their state, or that pickle leaves out."""


def reducer_of(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that reduces values of *kind*, if pickle cannot."""
    if kind is getattr(sys.modules.get("annotationlib"), "ForwardRef", None):
        return reduce_forward_reference
    if kind is getattr(sys.modules.get("msgspec"), "Meta", None):
        return _reduce_meta
    if kind is getattr(sys.modules.get("pydantic._internal._config"), "ConfigWrapper", None):
        return _reduce_config
    if issubclass(kind, BaseException):
        return _reduce_error
    return _REDUCERS.get(kind)


def _reduce_weak_mapping(mapping: Any) -> Any:
    # Caches of the standard library, such as that of functools.singledispatch.
    return type(mapping), (dict(mapping),)


def _reduce_cached_property(cached: Any) -> Any:
    # In Python 3.11 it holds a lock.
    state = {"attrname": cached.attrname, "__doc__": cached.__doc__}
    return type(cached), (cached.func,), state


def _reduce_meta(meta: Any) -> Any:
    keywords = {name: getattr(meta, name) for name in dir(meta) if not name.startswith("_")}
    keywords = {name: value for name, value in keywords.items() if value is not None}
    kind: Any = type(meta)
    return functools.partial(kind, **keywords), ()


def _reduce_config(config: Any) -> Any:
    # Pickle would create it empty first, and its `__getattr__` would then recurse without end.
    kind: Any = type(config)
    return functools.partial(kind, config.config_dict, check=False), ()


def _global_of_dataclasses(name: str) -> tuple[type, Callable[[Any], Any]]:
    # `dataclasses` compares it by identity, so a copy would not be recognised.
    return type(getattr(dataclasses, name)), lambda _: name


_REDUCERS: Final[dict[type, Callable[[Any], Any]]] = {
    **dict(map(_global_of_dataclasses, ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY"))),
    functools.cached_property: _reduce_cached_property,
    weakref.WeakKeyDictionary: _reduce_weak_mapping,
    weakref.WeakValueDictionary: _reduce_weak_mapping,
    weakref.WeakSet: lambda members: (type(members), (list(members),)),
}


def _reduce_error(error: BaseException) -> Any:
    """Return how to rebuild *error* without calling an `__init__` of its own class.

    Pickle would call that `__init__` with `args`, which often do not match its parameters.
    """
    kind = type(error)
    builtin = builtin_base(kind)

    def inherits(*names: str) -> bool:
        return all(getattr(kind, name) == getattr(builtin, name) for name in names)

    if (
        kind in copyreg.dispatch_table
        or not inherits("__reduce__", "__reduce_ex__")
        or inherits("__init__", "__new__")
    ):
        return NotImplemented
    args = error.args
    if isinstance(error, BaseExceptionGroup):
        args = error.message, list(error.exceptions)
    slots: dict[str, Any] = {"args": error.args}
    for base in kind.__mro__:
        # A builtin attribute without a value reads as None. Do not set it to None: C code distinguishes them.
        no_value = None if builtin_base(base) is base else slots
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and name not in _NOT_STATE:
                value = getattr(error, name, no_value)
                if value is not no_value:
                    slots[name] = value
    return bare_error, (kind, args), (slots, dict(vars(error))), None, None, fill_error
