"""Reducers for values in attributes of classes that pickle cannot reduce itself."""

from __future__ import annotations

import dataclasses
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

from kinetic_payload.calls.annotations import reduce_forward_reference


def _reduce_weak_mapping(mapping: Any) -> Any:
    # Caches of the standard library, such as that of functools.singledispatch.
    return type(mapping), (dict(mapping),)


def _reduce_weak_set(members: Any) -> Any:
    return type(members), (list(members),)


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
    weakref.WeakSet: _reduce_weak_set,
}


def reducer_of(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that reduces values of *kind*, if pickle cannot."""
    if kind is getattr(sys.modules.get("annotationlib"), "ForwardRef", None):
        return reduce_forward_reference
    if kind is getattr(sys.modules.get("msgspec"), "Meta", None):
        return _reduce_meta
    if kind is getattr(sys.modules.get("pydantic._internal._config"), "ConfigWrapper", None):
        return _reduce_config
    return _REDUCERS.get(kind)
