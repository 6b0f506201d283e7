"""The functions that a pickle calls by name to rebuild classes that travel by value.

A class travels with its state, which includes the effects of its decorators, its metaclass and
`__init_subclass__`. So a metaclass or `__init_subclass__` that travels by value is not run again. One of an
importable module is run again, because the module is imported again, without the effects of the first run.

As in `calls.rebuild`, the names here are part of the wire format: do not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from importlib import import_module
from typing import Any
from weakref import WeakSet

from kinetic_payload.calls.classes import pytrees
from kinetic_payload.calls.rebuild import HEAP_TYPE, register_in_main
from kinetic_payload.errors import PayloadError
from kinetic_payload.frozen import frozen

_unfilled: WeakSet[type] = WeakSet()


@frozen(kw_only=True)
class Blueprint:
    """The parts that a class is made from, before anything can refer to it."""

    metaclass: type
    maker: type
    """The metaclass itself, or the first of its bases that does not travel by value."""
    name: str
    bases: tuple[type, ...]
    namespace: dict[str, Any]
    body: dict[str, Any] | None = None
    """The rest of the body, for an imported metaclass or `__init_subclass__` that may read it."""
    keywords: dict[str, Any] = field(default_factory=dict)
    silenced: type | None = None
    """The base whose `__init_subclass__` travels by value, and must not run again."""
    following: type | None = None
    """The next base with an `__init_subclass__` that is imported."""
    fields: tuple[str, ...] | None = None
    """For a pytree of JAX that its base class may register: the fields that the rebuilt class must have."""


@frozen(kw_only=True)
class Contents:
    """Attributes and registrations of a class, set when other objects can refer to it."""

    attributes: dict[str, Any]
    functions: tuple[Callable[..., Any], ...] = ()
    """Functions that the body lacks parts of, such as factories of defaults: unpickling completes them."""
    plainly: bool = False
    """Whether to bypass the `__setattr__` of its metaclass."""
    subclasses: tuple[type, ...] = ()
    """Virtual subclasses, of an abstract base class."""
    abstract_bases: tuple[type, ...] = ()
    """Imported abstract base classes with which it is registered as a virtual subclass."""
    registrations: tuple[tuple[Any, ...], ...] = ()
    """Calls that register it: module and name of a function, and the arguments after the class."""


def make_class(blueprint: Blueprint, identity: str, qualname: str, main_name: str | None) -> type:
    """Return the class of this *identity*, if this process has it, or make it; `fill_class` follows.

    *main_name* is its name in `__main__`, where other processes look for it.
    """
    return _find_or_make(identity, qualname, main_name, lambda: _make(blueprint))


def fill_class(made: type, contents: Contents) -> None:
    """Set the attributes of a class that was just made. A class that existed here before keeps its own."""
    if made not in _unfilled:
        return
    _unfilled.discard(made)
    _fill(made, contents)


def make_enum(
    blueprint: Blueprint,
    members: dict[str, tuple[Any, ...]],
    canonical: dict[str, Any],
    identity: str,
    qualname: str,
    main_name: str | None,
) -> type:
    """Return the enum of this *identity*, or make it; `fill_enum` follows.

    *members* are the arguments that make each member's bare object. *canonical* identifies aliases: by value
    for flags, whose class is computed from the values, and by name for other members, whose values may refer to
    the class. No code of the user is called.
    """
    return _find_or_make(
        identity, qualname, main_name, lambda: _make_enum(blueprint, members, canonical)
    )


def fill_enum(made: Any, state: tuple[Contents, dict[str, dict[str, Any]], dict[Any, str]]) -> None:
    """Set the attributes of an enum that was just made, and of its members.

    The second item of *state* holds the attributes of each member, `_value_` among them. The third maps further
    values to the names of their members.
    """
    if made not in _unfilled:
        return
    _unfilled.discard(made)
    contents, members, further = state
    for name in ("__new__", "__init__", "__new_member__"):
        if name not in contents.attributes and name in vars(made):
            type.__delattr__(made, name)
    _fill(made, contents)
    by_value = made._value2member_map_
    # Keep combinations of flags that were made meanwhile: each must stay the only object of its value.
    combined = [member for member in by_value.values() if member._name_ not in members]
    by_value.clear()
    for name, attributes in members.items():
        member = made._member_map_[name]
        for key, value in attributes.items():
            object.__setattr__(member, key, value)
        with suppress(TypeError):  # An enum finds a value without a hash by searching its members.
            by_value.setdefault(member._value_, member)
    for value, name in further.items():
        by_value.setdefault(value, made._member_map_[name])
    for member in combined:
        by_value.setdefault(member._value_, member)


def member_of(made: Any, name: str) -> Any:
    """Return the member *name* of an enum, also of one that is not filled yet."""
    return made._member_map_[name]


def same(made: Any) -> Any:
    """Return *made*: a function with whose bare form a class was made."""
    return made


def method(kind: type, *parts: Any) -> Any:
    """Make a classmethod, staticmethod or property of bare functions."""
    return kind(*parts)


def dataclass_field(arguments: dict[str, Any]) -> Any:
    """Make the `dataclasses.field` of the class's body."""
    import dataclasses

    return dataclasses.field(**arguments)


def struct_field(factory: Callable[[], Any]) -> Any:
    """Make the `msgspec.field` of the body, with a default factory."""
    import msgspec

    return msgspec.field(default_factory=factory)


def _find_or_make(
    identity: str, qualname: str, main_name: str | None, make: Callable[[], type]
) -> type:
    from cloudpickle import cloudpickle

    known: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    if known is not None:
        cloudpickle._lookup_class_or_track(identity, known)
        return known
    made = make()
    type.__dict__["__qualname__"].__set__(made, qualname)
    cloudpickle._lookup_class_or_track(identity, made)
    _unfilled.add(made)
    register_in_main(main_name, made)
    return made


def _make(plan: Blueprint) -> type:
    with _without_hook(plan):
        if plan.body is None:
            return _create(plan, plan.namespace)
        try:
            made = _create(plan, {**plan.namespace, **plan.body})
        except Exception as error:
            if plan.fields is not None:
                raise _rebuild_error(plan, f"{type(error).__name__}: {error}") from error
            # The metaclass rejects attributes that it made itself. Do as cloudpickle does: pass no body.
            return _create(plan, plan.namespace)
    if plan.fields is not None and "__dataclass_fields__" in vars(made):
        found = tuple(vars(made)["__dataclass_fields__"])
        if found != plan.fields:
            raise _rebuild_error(plan, f"it has the fields {found} instead of {plan.fields}")
    return made


def _create(plan: Blueprint, namespace: dict[str, Any]) -> type:
    keywords = plan.keywords
    body = _prepare_namespace(plan, keywords)
    body.update(namespace)
    if plan.maker is plan.metaclass:
        made: type = plan.metaclass(plan.name, plan.bases, body, **keywords)
        return made
    made = plan.maker.__new__(plan.metaclass, plan.name, plan.bases, body, **keywords)
    plan.maker.__init__(made, plan.name, plan.bases, body, **keywords)  # type: ignore[misc]
    return made


def _prepare_namespace(plan: Blueprint, keywords: dict[str, Any]) -> Any:
    # Search as `super()` in the metaclass would: another base may define `__prepare__`.
    line = plan.metaclass.__mro__[plan.metaclass.__mro__.index(plan.maker) :]
    prepare = next(vars(kind)["__prepare__"] for kind in line if "__prepare__" in vars(kind))
    return prepare.__get__(None, plan.metaclass)(plan.name, plan.bases, **keywords)


def _rebuild_error(plan: Blueprint, why: str) -> PayloadError:
    return PayloadError(
        f"The class {plan.name}, a pytree of JAX, cannot be rebuilt here: {why}.",
        hint="Move the class into a module of the project, and import it from there.",
    )


@contextmanager
def _without_hook(plan: Blueprint) -> Iterator[None]:
    """Disable the silenced `__init_subclass__` meanwhile: `type.__new__` always calls it."""
    owner, following = plan.silenced, plan.following
    if owner is None:
        yield
        return

    def hook(cls: type, /, **keywords: Any) -> None:
        if following is not None:
            vars(following)["__init_subclass__"].__get__(None, cls)(**keywords)

    own = vars(owner).get("__init_subclass__")
    type.__setattr__(owner, "__init_subclass__", classmethod(hook))
    try:
        yield
    finally:
        if own is None:
            type.__delattr__(owner, "__init_subclass__")
        else:
            type.__setattr__(owner, "__init_subclass__", own)


def _make_enum(
    plan: Blueprint, members: dict[str, tuple[Any, ...]], canonical: dict[str, Any]
) -> type:
    # At most one built-in type below an enum is not `object`.
    bases = [base for first in plan.bases for base in first.__mro__ if base is not object]
    solid: Any = next((base for base in bases if not base.__flags__ & HEAP_TYPE), object)

    def new(cls: type, name: Any) -> Any:
        if isinstance(name, tuple):  # the members are tuples themselves
            (name,) = name
        member = solid.__new__(cls, *members[name])
        member._value_ = canonical[name]
        return member

    maker: Any = plan.maker
    body = _prepare_namespace(plan, {})
    for key, value in plan.namespace.items():
        body[key] = value
    body["__new__"], body["__init__"] = new, lambda *_: None
    for name in members:
        body[name] = (name,)
    with _without_hook(plan):
        made: type = maker.__new__(plan.metaclass, plan.name, plan.bases, body, **plan.keywords)
    return made


def _fill(made: type, contents: Contents) -> None:
    put: Callable[[type, str, Any], None] = type.__setattr__ if contents.plainly else setattr
    for name, value in contents.attributes.items():
        # Setting the public name discards annotations that were computed before the class had attributes.
        put(made, "__annotate__" if name == "__annotate_func__" else name, value)
    first_line = contents.attributes.get("__firstlineno__")
    if first_line is not None:  # Python 3.13 removes it when other attributes are set.
        put(made, "__firstlineno__", first_line)
    for subclass in contents.subclasses:
        made.register(subclass)  # type: ignore[attr-defined]
    for abstract in contents.abstract_bases:
        abstract.register(made)  # type: ignore[attr-defined]
    for module, name, *arguments in contents.registrations:
        if module == pytrees.MODULE:
            pytrees.register(made, name, arguments)
        else:
            getattr(import_module(module), name)(made, *arguments)
