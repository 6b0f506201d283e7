"""Introspection of classes: their attributes, and which of these were generated, as far as a class shows it."""

from __future__ import annotations

import abc
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final

from kinetic_payload.errors import PayloadError

_SET_BY_CREATION: Final = frozenset(
    {"__dict__", "__weakref__", "__module__", "_abc_impl", "__orig_bases__", "__slots__"}
)
"""Attributes that creating a class sets, or that are passed to its creation."""
_HEAP_TYPE: Final = 1 << 9
"""A flag of types that were made by Python code."""
_GENERATED: Final = (
    "__init__",
    "__repr__",
    "__eq__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__getstate__",
    "__setstate__",
    "__replace__",
)


class UnrestorableClassError(PayloadError):
    """A class, or a type alias, cannot be rebuilt as it is."""

    def __init__(self, made: Any, why: str, *, kind: str = "class") -> None:
        name = getattr(made, "__qualname__", made.__name__)
        super().__init__(
            f"The {kind} {name} of {made.__module__} cannot be pickled by value: {why}.",
            hint=f"Move the {kind} into a module of the project, and import it from there.",
        )


def own_attributes(cls: type) -> Iterator[tuple[str, Any]]:
    """Iterate over the attributes of *cls*, except those that creating a class sets."""
    for name, value in vars(cls).items():
        described = isinstance(value, MemberDescriptorType | GetSetDescriptorType)
        if name not in _SET_BY_CREATION and not (described and value.__objclass__ is cls):
            yield name, value


def state_of(member: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the attributes and slots of *member*, of an enum."""
    yield from vars(member).items()
    for base in type(member).__mro__:
        for name, value in vars(base).items():
            slot = isinstance(value, MemberDescriptorType) and base.__flags__ & _HEAP_TYPE
            if slot and hasattr(member, name):
                yield name, getattr(member, name)


def bare_arguments(cls: type, member: Any) -> tuple[Any, ...]:
    """Return the arguments that make *member* without its attributes."""
    solid: Any = next(
        (base for base in cls.__mro__[:-1] if not base.__flags__ & _HEAP_TYPE), object
    )
    if solid is object:
        return ()
    try:
        if hasattr(solid, "__getnewargs__"):
            return tuple(solid.__getnewargs__(member))
        if "__reduce__" in vars(solid):
            return tuple(solid.__reduce__(member)[1])
        return tuple(solid.__reduce_ex__(member, 2)[1])
    except Exception as error:
        raise UnrestorableClassError(
            cls, f"the {solid.__name__} value of its members is not known: {error}"
        ) from error


def subclasses_of(classes: Iterable[type]) -> Iterator[type]:
    """Iterate over all classes below *classes*, each once."""
    seen: set[type] = set()
    waiting = [*classes]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        below = [cls for cls in below if cls not in seen]
        seen.update(below)
        waiting += below
        yield from below


def virtual_subclasses(cls: type) -> tuple[type, ...]:
    """Return the classes that were registered with *cls*, if it is an abstract base class."""
    if not isinstance(cls, abc.ABCMeta):
        return ()
    registry = abc._get_dump(cls)[0]  # type: ignore[attr-defined]
    return tuple(subclass for reference in registry if (subclass := reference()) is not None)


def derives_from(cls: type, module: str, name: str) -> bool:
    """Tell whether *cls* derives from the class *name* of *module*; do not import that module."""
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and base in cls.__mro__


def keywords_of(cls: type, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords in the class statement of *cls*, which only its source shows.

    Raises:
        UnrestorableClassError: The value of a keyword is neither a constant nor a name in *namespace*.
    """
    try:
        statement = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):  # A notebook, a class made by a call.
        return {}
    found = {}
    for keyword in statement.keywords if isinstance(statement, ast.ClassDef) else ():
        name, value = keyword.arg, keyword.value
        if name == "metaclass":
            continue
        if name and isinstance(value, ast.Name) and value.id in namespace:
            found[name] = namespace[value.id]
            continue
        try:
            found[str(name)] = ast.literal_eval(value)
        except ValueError as error:
            raise UnrestorableClassError(
                cls,
                f"the value of the keyword {name!r} in its class statement is computed",
            ) from error
    return found


def is_marked_abstract(cls: type) -> bool:
    """Tell whether an `equinox.Module` was made with `is_abstract`, which leaves no other trace."""
    return any(
        cls in getattr(module, "_abstract_module_registry", ())
        for name, module in sys.modules.copy().items()
        if name.startswith("equinox.")
    )


def generated_by_dataclass(cls: type) -> frozenset[str]:
    """Return the names of the attributes that `dataclasses.dataclass` generated for *cls*."""
    own = vars(cls)
    if "__dataclass_params__" not in own:
        return frozenset()
    names = {"__dataclass_fields__", "__dataclass_params__", "__match_args__"}
    for name in _GENERATED:
        function: Any = own.get(name)
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        code = getattr(function, "__code__", None)
        module = getattr(function, "__globals__", {}).get("__name__")
        if code is not None and (code.co_filename == "<string>" or module == "dataclasses"):
            names.add(name)
    if "__eq__" in names and own.get("__hash__", 1) is None:
        names.add("__hash__")
    return frozenset(names)
