"""The body of a class that travels by value, for imported hooks that read it while the class is made."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, Final

from kinetic_payload.calls.annotations import annotations_of, is_annotate, own_annotations
from kinetic_payload.calls.classes import rebuild as class_rebuild
from kinetic_payload.calls.classes.introspection import derives_from, own_attributes
from kinetic_payload.calls.function_state import function_state
from kinetic_payload.errors import PayloadError

_FIELD_PARAMETERS: Final = (
    "default",
    "default_factory",
    "init",
    "repr",
    "hash",
    "compare",
    "kw_only",
)
_PLAIN_FIELD: Final = {
    "default_factory": None,
    "init": True,
    "repr": True,
    "hash": None,
    "compare": True,
    "kw_only": False,
    "metadata": None,
}
"""Parameters of a field that needs no `dataclasses.field` in the body."""
_CALL_NO_METHODS: Final = (
    ("equinox", "Module"),
    ("flax.linen", "Module"),
    ("flax.nnx", "Pytree"),
    ("flax.struct", "PyTreeNode"),
    ("msgspec", "Struct"),
)
"""Libraries that read the body of a class, and call nothing in it."""
_CONTAINERS: Final = (tuple, list, set, frozenset, dict)
_ATOMS: Final = (str, bytes, int, float, complex, bool, type(None), type(...))


class Helper:
    """Pickles as a call of *make* with *arguments*."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._made = make, arguments

    def __reduce__(self) -> Any:
        return self._made


class Bare:
    """A function in the body of a class, without anything that refers to the class.

    The class is made with this function, before anything that refers to the class can be pickled.
    """

    __slots__ = ("function", "state")

    def __init__(self, function: FunctionType, state: Any) -> None:
        self.function = function
        self.state = state


class ReachedError(PayloadError):
    """A value refers to the class that has to be made before it."""


class Body:
    """The part of the body of *cls* that *pickler* can pickle before the class exists."""

    def __init__(self, cls: Any, pickler: Any) -> None:
        self._cls = cls
        self._pickler = pickler
        self._silent = any(derives_from(cls, *base) for base in _CALL_NO_METHODS)
        self._reached: dict[int, tuple[Any, bool]] = {}
        """By id: the value, kept alive so that its id stays its own, and whether it leads to the class."""

    def plain(self, left_out: frozenset[str]) -> dict[str, Any]:
        """Return the part of the body that can be pickled before the class exists, with fields as written."""
        body: dict[str, Any] = {}
        for name, value in own_attributes(self._cls):
            if name not in left_out:
                found, part = self._part(value)
                if found:
                    body[name] = part
        own = own_annotations(self._cls)
        body.pop("__annotations_cache__", None)
        if own and vars(self._cls).get("__annotate_func__") is None:
            # `own` is a new copy: otherwise pickle would refer to a dictionary that is not complete yet.
            body["__annotations__"] = own
        for name, field in vars(self._cls).get("__dataclass_fields__", {}).items():
            if name not in own or field._field_type is dataclasses._FIELD_CLASSVAR:  # type: ignore[attr-defined]
                continue
            body.pop(name, None)
            arguments = {
                key: self.safe(value)
                for key in _FIELD_PARAMETERS
                if (value := getattr(field, key)) is not dataclasses.MISSING
            }
            if field.metadata:
                arguments["metadata"] = {
                    key: self.safe(each) for key, each in field.metadata.items()
                }
            if any(
                arguments[key] != value for key, value in _PLAIN_FIELD.items() if key in arguments
            ):
                body[name] = Helper(class_rebuild.dataclass_field, arguments)
            elif "default" in arguments:
                body[name] = arguments["default"]
        return body

    def safe(self, value: Any) -> Any:
        """Return what to pickle for *value* before the class exists; if that is impossible, *value* itself."""
        found, part = self._part(value)
        return part if found else value

    def _part(self, value: Any) -> tuple[bool, Any]:
        """Return whether *value* can be pickled before the class exists, and what to pickle for it."""
        if isinstance(value, FunctionType):
            if not self._pickler.goes_by_value(value) or id(value) in self._pickler.whole:
                return True, value
            if not isinstance(value.__globals__.get("__name__"), str):
                return False, None
            if id(value) not in self._pickler.bare:
                bare = self._pickler.bare[id(value)] = Bare(value, None)
                bare.state = self._bare_state(value)
            return True, self._pickler.bare[id(value)]
        if isinstance(value, classmethod | staticmethod):
            found, part = self._part(value.__func__)
            return found, Helper(class_rebuild.method, type(value), part)
        if type(value) is property:
            parts = [self._part(accessor) for accessor in (value.fget, value.fset, value.fdel)]
            made = Helper(class_rebuild.method, property, *(part for _, part in parts))
            return all(found for found, _ in parts), made
        if hasattr(type(value), "__set_name__") and self._pickler.goes_by_value(type(value)):
            return False, None  # Its `__set_name__` was called already.
        if self._silent and not isinstance(value, (*_ATOMS, *_CONTAINERS, type)):
            return False, None
        return not self._leads_to(value), value

    def _bare_state(self, function: FunctionType) -> tuple[Any, ...]:
        """Return the state of *function* without anything that leads to the class."""
        state, slots = function_state(function)

        def safe(named: dict[str, Any]) -> dict[str, Any]:
            parts = {name: self._part(value) for name, value in named.items()}
            return {name: part for name, (found, part) in parts.items() if found}

        defaults = [self._part(value) for value in function.__defaults__ or ()]
        whole = all(found for found, _ in defaults)
        slots["__defaults__"] = tuple(part for _, part in defaults) if defaults and whole else None
        slots["__kwdefaults__"] = safe(function.__kwdefaults__ or {}) or None
        slots.pop("__annotate__", None)
        slots["__annotations__"] = safe(annotations_of(function))
        silent = self._silent and not is_annotate(function)
        used = {} if silent else self._pickler.travelling_globals(function)
        slots["__globals__"] = {key: part for key, part in used.items() if not self._leads_to(part)}
        cells = () if silent else slots["__closure__"] or ()
        slots["__closure__"] = tuple(CellType() if self._leads_to(cell) else cell for cell in cells)
        slots["_cloudpickle_submodules"] = []
        return safe(state), slots

    def _leads_to(self, value: Any) -> bool:
        """Tell whether pickling *value* needs the class, or fails."""
        if type(value) in _ATOMS:
            return False
        if isinstance(value, type) and not self._pickler.goes_by_value(value):
            return False
        key = id(value)
        if key not in self._reached:
            prober = self._pickler.prober()
            prober.avoided = self._cls
            try:
                prober.dump_uncollected(value)
            except Exception:  # noqa: BLE001 - user code may raise anything
                self._reached[key] = value, True
            else:
                self._reached[key] = value, False
        return self._reached[key][1]


def struct_body(cls: Any, pickler: Any) -> dict[str, Any]:
    """Return the keywords and body that a `msgspec.Struct` is made from; its `vars` lack much of them."""
    import msgspec

    config = cls.__struct_config__
    keywords = {name: getattr(config, name) for name in dir(config) if name[0] != "_"}
    parameters = inspect.signature(cls).parameters.values()
    keyword_only = {
        parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    }
    own = own_annotations(cls)
    class_body = Body(cls, pickler)
    body = class_body.plain(frozenset())
    renamed = {}
    for field in msgspec.structs.fields(cls):
        if field.encode_name != field.name:
            renamed[field.name] = field.encode_name
        if field.name not in own:
            continue
        if field.default is not msgspec.NODEFAULT:
            body[field.name] = class_body.safe(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            factory = class_body.safe(field.default_factory)
            body[field.name] = Helper(class_rebuild.struct_field, factory)
    if renamed:
        keywords["rename"] = renamed
    keywords["kw_only"] = bool(keyword_only.intersection(own))
    return {"keywords": keywords, "body": body}
