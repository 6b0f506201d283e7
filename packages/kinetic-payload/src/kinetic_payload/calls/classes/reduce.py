"""`ClassPickler`: reduces classes that travel by value, and the functions in them.

`classes.rebuild` rebuilds them, and documents which code runs again.
"""

from __future__ import annotations

import abc
import copyreg
import dataclasses
import enum
import functools
import pickle
import sys
import typing
from collections.abc import Callable, Iterator
from math import inf
from types import FunctionType
from typing import Any, Final

import cloudpickle
from cloudpickle import cloudpickle as internals

from kinetic_payload.calls import rebuild
from kinetic_payload.calls.annotations import CLASS_NAMESPACE, value_in
from kinetic_payload.calls.classes import pytrees
from kinetic_payload.calls.classes import rebuild as class_rebuild
from kinetic_payload.calls.classes.body import Bare, Body, Helper, ReachedError, struct_body
from kinetic_payload.calls.classes.introspection import (
    UnrestorableClassError,
    bare_arguments,
    derives_from,
    generated_by_dataclass,
    is_marked_abstract,
    keywords_of,
    own_attributes,
    state_of,
    subclasses_of,
    virtual_subclasses,
)
from kinetic_payload.calls.classes.rebuild import Blueprint, Contents
from kinetic_payload.calls.function_state import function_state
from kinetic_payload.calls.reducers import reducer_of

Handler = Callable[[Any], Any]

_ALIAS: Final[type] = getattr(typing, "TypeAliasType", type(None))
"""`type X = …`, from Python 3.12 on."""
NAMED_TYPES: Final = (typing.ParamSpec, typing.TypeVar, typing.TypeVarTuple, typing.NewType, _ALIAS)
"""Types of `typing` whose instances pickle can refer to only by name."""
_DATACLASS_PARAMETERS: Final = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")
_SET_ON_MEMBERS: Final = frozenset({"_name_", "__objclass__", "_sort_order_"})
"""Attributes that members of an enum get when the enum is made."""
_SET_ON_ENUMS: Final = ("_member_map_", "_member_names_", "_member_type_", "_value2member_map_")


class ByteCounter:
    """A stream that keeps only the number of bytes, and takes no more than *most*."""

    def __init__(self, most: float = inf) -> None:
        self.size = 0
        self._most = most

    def write(self, data: Any) -> int:
        """Count *data*."""
        size = memoryview(data).nbytes  # A large array comes as `pickle.PickleBuffer`.
        self.size += size
        if self.size > self._most:
            raise OverflowError(f"more than {self._most} bytes")
        return size


class ClassPickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """The base of the picklers of calls and of values: decides by the kind of an object how to reduce it.

    It reduces classes by value, and objects that wrap others, such as functions behind decorators.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._handlers: dict[type, Handler | None] = {}
        self.bare: dict[int, Bare] = {}
        """By id of a function: its bare form, with which a class was made."""
        self.whole: dict[int, FunctionType] = {}
        """By id: functions that were pickled with all that they refer to."""
        self._cells: dict[int, tuple[Any, Helper]] = {}
        """By id of a closure cell: the cell, kept alive, and the helper that pickles as an empty cell."""
        self._open: dict[int, Any] = {}
        """By id: type aliases whose values are being reduced."""
        self.avoided: type | None = None
        """A class that must not be reached; while it is set, other classes are pickled without their bodies."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle *obj*. Pickle does not call this for atoms and plain containers."""
        kind = type(obj)
        try:
            handler = self._handlers[kind]
        except KeyError:
            handler = self._handlers[kind] = self.handler_of(kind)
        return NotImplemented if handler is None else handler(obj)

    def handler_of(self, kind: type) -> Handler | None:
        """Return the function that reduces objects of *kind*; None if pickle does it."""
        if issubclass(kind, type):
            return self.reduce_class
        if issubclass(kind, enum.Enum) and self.goes_by_value(kind):
            return self.reduce_member
        if kind is FunctionType:
            return self.reduce_function
        if kind is Bare:
            return self.reduce_bare_function
        if kind in NAMED_TYPES:
            return self.reduce_named_type
        if (reduce := reducer_of(kind)) is not None:
            return reduce
        # Only something that can be called can be a decorated function.
        return self._reduce_wrapper if hasattr(kind, "__call__") else None  # noqa: B004

    def reduce_class(self, cls: type) -> Any:
        """Return how to find or rebuild *cls*."""
        raise NotImplementedError

    def reduce_function(self, function: FunctionType) -> Any:
        """Return how to find or rebuild *function*."""
        raise NotImplementedError

    def reference(self, obj: Any) -> tuple[str, str, int] | None:
        """Return where *obj* is found when it is loaded: module, name, and how many other objects it wraps."""
        raise NotImplementedError

    def importable(self, module: object) -> bool:
        """Tell whether the module of this name can be imported where the pickle is loaded."""
        raise NotImplementedError

    def goes_by_value(self, obj: Any) -> bool:
        """Tell whether *obj*, a class or function, is rebuilt where it is loaded rather than imported."""
        raise NotImplementedError

    def reduce_bare(self, function: FunctionType) -> tuple[Any, ...]:
        """Return how to rebuild *function* without the objects that it refers to."""
        return internals._make_function, self._function_getnewargs(function)

    def travelling_globals(self, function: FunctionType) -> dict[str, Any]:
        """Return the globals that must travel with a *function* whose code travels by value."""
        used: dict[str, Any] = function_state(function)[1]["__globals__"]
        return used

    def prober(self) -> ClassPickler:
        """Return a pickler like this one that only counts bytes."""
        raise NotImplementedError

    def dump_uncollected(self, value: Any) -> None:
        """Pickle *value* without collecting its `Data`."""
        self.dump(value)

    def closure_of(self, function: FunctionType) -> tuple[Any, ...] | None:
        """Return the cells that *function* is made with; functions that share a variable share its cell."""
        if function.__closure__ is None:
            return None
        made = []
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
            empty = Helper(internals._make_empty_cell)
            # The namespace of a class is not shared: each function gets only the attributes that it needs.
            shared = name != CLASS_NAMESPACE
            made.append(self._cells.setdefault(id(cell), (cell, empty))[1] if shared else empty)
        return tuple(made)

    def _function_getnewargs(self, func: FunctionType) -> tuple[Any, ...]:
        return *super()._function_getnewargs(func)[:-1], self.closure_of(func)

    def _dynamic_function_reduce(self, func: FunctionType) -> tuple[Any, ...]:
        new, state = self._function_getnewargs(func), function_state(func)
        return internals._make_function, new, state, None, None, internals._function_setstate

    def reduce_bare_function(self, bare: Bare) -> tuple[Any, ...]:
        """Return how to rebuild the function of *bare* with the state of *bare*."""
        made = self.reduce_bare(bare.function)
        return *made, bare.state, None, None, internals._function_setstate

    def bared(self, function: FunctionType, reduced: tuple[Any, ...]) -> Any:
        """Return *reduced*; change it to complete the bare form of *function* if a class was made with that."""
        bare = self.bare.get(id(function))
        if bare is None:
            self.whole[id(function)] = function
            return reduced
        return (class_rebuild.same, (bare,), *reduced[2:])

    def reduce_member(self, member: Any) -> Any:
        """Return how to find *member* in its rebuilt enum, possibly before the member has its value."""
        if type(member)._member_map_.get(member._name_) is not member:
            return NotImplemented  # A combination of flags
        return class_rebuild.member_of, (type(member), member._name_)

    def _reduce_wrapper(self, obj: Any) -> Any:
        if not rebuild.wraps(obj):
            return NotImplemented
        reference = self.reference(obj)
        if reference is not None:
            return rebuild.resolve, reference
        kind: Any = type(obj)
        if kind is rebuild.CACHED:
            return rebuild.cached_function, (obj.__wrapped__, obj.cache_parameters())
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        has_arguments = hasattr(kind, "__getnewargs__") or hasattr(kind, "__getnewargs_ex__")
        if plain and not has_arguments and isinstance(kind.__new__, FunctionType):
            # Pickle would call its `__new__` without the arguments that it needs.
            state = obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)[2]
            return rebuild.bare_wrapper, (kind,), state
        return NotImplemented

    def reduce_named_type(self, named: Any) -> Any:
        """Return how to rebuild *named*, an instance of one of `NAMED_TYPES`."""
        module = named.__module__
        if (
            self.importable(module)
            and getattr(sys.modules.get(module), named.__name__, None) is named
        ):
            return NotImplemented
        kind, identity, keywords = type(named), None, {}
        if kind is typing.TypeVar and not _newer_keywords(named):
            return internals._make_typevar, internals._decompose_typevar(named)
        arguments = [named.__name__]
        if kind is not _ALIAS:  # which cannot be tracked: it has no weak references
            keywords = _newer_keywords(named)
            if kind is typing.TypeVar:
                arguments += value_in(named, "constraints")
                keywords["bound"] = value_in(named, "bound")
                keywords["covariant"] = named.__covariant__
                keywords["contravariant"] = named.__contravariant__
            identity = internals._get_or_create_tracker_id(named)
            if kind is typing.NewType:
                arguments.append(named.__supertype__)
        elif not named.__type_params__:
            values: list[Any] = []  # The value may refer to the alias, so it follows.
            make, fill = rebuild.alias, rebuild.fill_alias
            state = values, value_in(named, "value")
            return make, (named.__name__, named.__module__, values), state, None, None, fill
        elif id(named) in self._open:
            why = "it has type parameters, and its value refers to itself"
            raise UnrestorableClassError(named, why, kind="type alias")
        else:
            self._open[id(named)] = named
            arguments.append(value_in(named, "value"))
            keywords["type_params"] = named.__type_params__
        made_by = rebuild.named_type
        return made_by, (kind, named.__module__, identity, tuple(arguments), keywords)

    def reduce_class_by_value(self, cls: Any, *, main_name: str | None) -> Any:
        """Return how to rebuild *cls*."""
        if self.avoided is not None and cls is self.avoided:
            raise ReachedError(f"The value leads to {cls.__qualname__}.")
        identity = internals._get_or_create_tracker_id(cls)
        if internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity) is not cls:
            raise UnrestorableClassError(cls, "its metaclass compares it equal to another class")
        if (vars(cls).get("__pydantic_generic_metadata__") or {}).get("origin"):
            # pydantic looks up `Model[int]`.
            raise UnrestorableClassError(cls, "it is a generic pydantic model with parameters")
        named = (identity, cls.__qualname__, main_name)
        if isinstance(cls, enum.EnumMeta) and cls is not enum.Enum:
            blueprint, members, canonical, state = self._enum(cls)
            make, arguments = class_rebuild.make_enum, (blueprint, members, canonical, *named)
            return make, arguments, state, None, None, class_rebuild.fill_enum
        before = len(self.bare)
        blueprint, left_out = self._blueprint(cls)
        bare = [*self.bare.values()][before:]
        contents = dataclasses.replace(
            self._contents(cls, blueprint, left_out),
            functions=tuple(one.function for one in bare),
        )
        make_it = class_rebuild.make_class
        return make_it, (blueprint, *named), contents, None, None, class_rebuild.fill_class

    def _blueprint(self, cls: Any) -> tuple[Blueprint, frozenset[str]]:
        """Return the blueprint of *cls*, and the attributes that making the class from it creates."""
        metaclass = type(cls)
        maker = next(kind for kind in metaclass.__mro__ if not self.goes_by_value(kind))
        if metaclass.__name__ == "_TypedDictMeta":
            maker = type  # It refuses the base `dict`, which every class that it makes has.
        owners = [base for base in cls.__mro__[1:] if "__init_subclass__" in vars(base)]
        silenced = following = None
        if owners and self.goes_by_value(owners[0]):
            silenced = owners[0]
            following = next((base for base in owners if not self.goes_by_value(base)), None)
        imported = [maker, *(base for base in owners if not self.goes_by_value(base))]
        own = vars(cls)
        namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        # `msgspec` makes the slots from the fields.
        makes_slots = derives_from(cls, "msgspec", "Struct")
        for name in ("__orig_bases__",) if makes_slots else ("__orig_bases__", "__slots__"):
            if name in own:
                namespace[name] = own[name]
        if isinstance(own.get("__dict__"), property):
            namespace["__dict__"] = own["__dict__"]
        plan: dict[str, Any] = {}
        left_out: frozenset[str] = frozenset()
        if self.avoided is None and any(
            kind.__module__.partition(".")[0] not in sys.stdlib_module_names for kind in imported
        ):
            consumed = silenced is not None or maker is not metaclass
            plan, left_out = self._body(cls, consumed=consumed)
        return (
            Blueprint(
                metaclass=metaclass,
                maker=maker,
                name=cls.__name__,
                bases=cls.__bases__,
                namespace=namespace,
                silenced=silenced,
                following=following,
                **plan,
            ),
            left_out,
        )

    def _body(self, cls: Any, *, consumed: bool) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the rest of the blueprint of *cls*, and the attributes that its metaclass or hook creates.

        The metaclass or `__init_subclass__` is imported. *consumed* tells whether code that travels by value
        consumed the keywords of the class statement.
        """
        if derives_from(cls, "pydantic", "BaseModel"):
            return {}, frozenset()  # All that makes a model is in its attributes.
        if derives_from(cls, "msgspec", "Struct"):
            return struct_body(cls, self), frozenset()
        generated = generated_by_dataclass(cls)
        plan: dict[str, Any] = {}
        left_out: frozenset[str] = frozenset()
        if derives_from(cls, "equinox", "Module"):
            left_out = generated
            if is_marked_abstract(cls):
                plan["keywords"] = {"is_abstract": True}
        elif "_flax_dataclass" in vars(cls) and derives_from(cls, "flax.struct", "PyTreeNode"):
            left_out = generated | {"_flax_dataclass", "replace"}
            plan["keywords"] = {
                name: getattr(cls.__dataclass_params__, name) for name in _DATACLASS_PARAMETERS
            }
        elif "_pytree__is_pytree" in vars(cls) and derives_from(cls, "flax.nnx", "Pytree"):
            plan["keywords"] = {"pytree": cls._pytree__is_pytree}
        elif not consumed:
            plan["keywords"] = keywords_of(cls, vars(sys.modules.get(cls.__module__, sys)))
        if pytrees.is_registered(cls):
            plan["fields"] = tuple(getattr(cls, "__dataclass_fields__", ()))
        plan["body"] = Body(cls, self).plain(generated | left_out)
        return plan, left_out

    def _contents(self, cls: Any, blueprint: Blueprint, left_out: frozenset[str]) -> Contents:
        attributes = {name: value for name, value in own_attributes(cls) if name not in left_out}
        setter = next(kind for kind in type(cls).__mro__ if "__setattr__" in vars(kind))
        return Contents(
            attributes=attributes,
            plainly=self.goes_by_value(setter),
            subclasses=virtual_subclasses(cls),
            abstract_bases=tuple(
                base for base in self._abstract_bases.get(cls, ()) if not self.goes_by_value(base)
            ),
            registrations=tuple(self._registrations(cls, blueprint)),
        )

    @functools.cached_property
    def _abstract_bases(self) -> dict[type, list[type]]:
        """By class: the abstract base classes with which it was registered."""
        roots = [cls for cls in type.__subclasses__(object) if isinstance(cls, abc.ABCMeta)]
        found: dict[type, list[type]] = {}
        for abstract in (*roots, *subclasses_of(roots)):
            for subclass in virtual_subclasses(abstract):
                found.setdefault(subclass, []).append(abstract)
        return found

    def _registrations(self, cls: type, blueprint: Blueprint) -> Iterator[tuple[Any, ...]]:
        if pytrees.is_registered(cls):
            try:
                yield pytrees.registration_of(cls)
            except pytrees.UnknownRegistrationError as error:
                if blueprint.fields is None:
                    raise UnrestorableClassError(
                        cls, f"it is a pytree of JAX, and {error}"
                    ) from error
                yield pytrees.EXPECTED  # The imported class that it derives from registers it.
        reducer = copyreg.dispatch_table.get(cls)
        if reducer is not None:
            yield "copyreg", "pickle", reducer
        flax = sys.modules.get("flax.serialization")
        functions = getattr(flax, "_STATE_DICT_REGISTRY", {}).get(cls)
        if functions is not None:
            yield ("flax.serialization", "register_serialization_state", *functions, True)

    def _enum(self, cls: Any) -> tuple[Blueprint, Any, Any, Any]:
        plan, _ = self._blueprint(cls)
        flag = issubclass(cls, enum.Flag)
        keywords = {"boundary": cls._boundary_} if flag else {}
        blueprint = dataclasses.replace(plan, body=None, keywords=keywords, fields=None)
        members, canonical, attributes = {}, {}, {}
        for name, member in cls._member_map_.items():
            members[name] = bare_arguments(cls, member)
            canonical[name] = member._value_ if flag else member._name_
            if member._name_ == name:
                attributes[name] = {
                    key: value for key, value in state_of(member) if key not in _SET_ON_MEMBERS
                }
        further = {
            value: member._name_
            for value, member in cls._value2member_map_.items()
            if member._name_ in members and value != member._value_
        }
        contents = self._contents(cls, blueprint, frozenset((*members, *_SET_ON_ENUMS)))
        contents = dataclasses.replace(contents, plainly=True)
        return blueprint, members, canonical, (contents, attributes, further)


def _newer_keywords(named: Any) -> dict[str, Any]:
    """Return the keywords of a type parameter that Python 3.12 (`def f[T]`) and 3.13 (`[T = int]`) added."""
    found: dict[str, Any] = {}
    if getattr(named, "__infer_variance__", False):
        found["infer_variance"] = True
    if sys.version_info >= (3, 13) and hasattr(named, "has_default") and named.has_default():
        found["default"] = value_in(named, "default")
    return found
