"""`frozen`: a frozen dataclass whose methods are shared: `dataclass` generates and compiles six for each class.

That is a third of the processor time of a process's first submit. An instance takes some microseconds longer to make,
so a class with thousands of instances is better a `dataclass`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Return a decorator like `dataclass(frozen=True, kw_only=…)`; `fields`, `replace` and `asdict` work as well."""

    def decorate(cls: type[T]) -> type[T]:
        made = dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        for name, method in _METHODS.items():
            if vars(cls).get(name) is None:  # With an `__eq__` of its own, its `__hash__` is None.
                setattr(made, name, method)
        return made

    return decorate


def _init(self: Any, *args: Any, **given: Any) -> None:
    known, kind = fields(self), type(self).__name__
    in_order = [each.name for each in known if not each.kw_only]
    twice = given.keys() & in_order[: len(args)]
    if len(args) > len(in_order) or twice:
        raise TypeError(
            f"{kind}() got {len(args)} positional arguments for {in_order}, and {given}"
        )
    given.update(zip(in_order, args, strict=False))
    for each in known:
        if each.name in given:
            value = given.pop(each.name)
        elif each.default is not MISSING:
            value = each.default
        elif each.default_factory is not MISSING:
            value = each.default_factory()
        else:
            raise TypeError(f"{kind}() is missing the argument {each.name!r}")
        self.__dict__[each.name] = value
    if given:
        raise TypeError(f"{kind}() got unexpected arguments: {', '.join(given)}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = [each.name for each in fields(self) if each.compare]
    # As tuples: a value equals itself, also nan.
    return tuple([getattr(self, name) for name in names]) == tuple(
        [getattr(other, name) for name in names]
    )


def _hash(self: Any) -> int:
    known = [each for each in fields(self) if (each.compare if each.hash is None else each.hash)]
    return hash(tuple([getattr(self, each.name) for each in known]))


def _repr(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:  # noqa: ARG001 - a method
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


_METHODS: dict[str, Callable[..., Any]] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}
