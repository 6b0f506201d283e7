"""Pytree classes of JAX: read their registration by the client, and register them again in the job.

Reading never imports JAX. It uses the public interface of JAX where possible. That interface does not expose
the functions of a registration, so these are read from JAX's registry.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import FunctionType
from typing import Any, Final, NoReturn

from kinetic_payload.calls.rebuild import HEAP_TYPE
from kinetic_payload.errors import PayloadError

MODULE: Final = "jax.tree_util"
Registration = tuple[Any, ...]
"""`MODULE`, the name of a function in it, and its arguments after the class."""
EXPECTED: Final[Registration] = (MODULE, "")
"""For a class that its base class registers: verify only that it is registered in the end."""


class UnknownRegistrationError(PayloadError):
    """The class is registered with JAX, and its registration cannot be read."""


def is_registered(cls: type) -> bool:
    """Tell whether *cls* was registered with JAX as a pytree. Named tuples are pytrees without registration."""
    tree_util = sys.modules.get(MODULE)
    if tree_util is None or not hasattr(tree_util, "all_leaves"):  # not there, or half imported
        return False
    if _entry(cls) is not None:
        return True
    if issubclass(cls, tuple):
        return False
    is_node = getattr(tree_util, "is_tree_node", None)  # older versions of JAX lack it
    if is_node is not None:
        return bool(is_node(cls))
    return not tree_util.all_leaves([_blank(cls)])


def registration_of(cls: type, instance: Any = None) -> Registration:
    """Return how to repeat the registration of *cls*.

    *instance* is one of its instances, if there is one; it shows whether children have names.

    Raises:
        UnknownRegistrationError: The registration cannot be read; the message says why.
    """
    entry = _entry(cls)
    if entry is None:
        raise UnknownRegistrationError("this version of JAX does not show its registration")
    flatten, unflatten = entry
    parts = _closure(flatten)
    if {"data_fields", "meta_fields"} <= parts.keys() and _is_of_jax(flatten):
        return (
            MODULE,
            "register_dataclass",
            parts["data_fields"],
            parts["meta_fields"],
            *_dropped(cls, parts),
        )
    if "flatten_with_keys" in parts and _is_of_jax(flatten):
        return MODULE, "register_pytree_with_keys", parts["flatten_with_keys"], unflatten
    tree_util = sys.modules["jax._src.tree_util"]
    keyed = getattr(tree_util, "_registry_with_keypaths", {}).get(cls)  # before JAX 0.4.36
    if keyed is not None:
        return MODULE, "register_pytree_with_keys", keyed[0], unflatten, flatten
    # An abstract class has no instances, so there are no children to name.
    if inspect.isabstract(cls) or not _names_children(cls, instance):
        return MODULE, "register_pytree_node", flatten, unflatten
    if hasattr(cls, "tree_flatten_with_keys") and hasattr(cls, "tree_flatten"):
        return MODULE, "register_pytree_with_keys_class"
    raise UnknownRegistrationError(
        "it was registered with two functions that flatten it, of which JAX shows only one"
    )


def register(cls: type, name: str, arguments: Sequence[Any]) -> None:
    """Register *cls* by the function *name* of `MODULE`, unless it is registered already.

    Raises:
        PayloadError: Its base class should have registered it.
    """
    tree_util = import_module(MODULE)
    if is_registered(cls):
        return
    if not name:
        raise PayloadError(
            f"The class {cls.__qualname__} was a pytree of JAX, and is not one here: its base class "
            "does not register it.",
            hint="Move the class into a module of the project, and import it from there.",
        )
    getattr(tree_util, name)(cls, *arguments)


def _entry(cls: type) -> Any:
    module = sys.modules.get("jax._src.tree_util")
    return getattr(module, "_registry", {}).get(cls)


def _is_of_jax(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("jax.")


def _closure(function: Any) -> dict[str, Any]:
    if not isinstance(function, FunctionType) or function.__closure__ is None:
        return {}
    return {
        name: cell.cell_contents
        for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True)
    }


def _dropped(cls: type, parts: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    fields = getattr(cls, "__dataclass_fields__", {}).values()
    kept = {*parts["data_fields"], *parts["meta_fields"]}
    dropped = tuple(field.name for field in fields if field.init and field.name not in kept)
    return (dropped,) if dropped else ()  # older versions of JAX lack the parameter


def _names_children(cls: type, instance: Any) -> bool:
    """Tell whether *cls* was registered with a function that gives names to its children."""
    tree_util = sys.modules[MODULE]

    def key_types(tree: Any) -> set[type]:
        paths, _ = tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
        return {type(path[0]) for path, _ in paths if path}

    found: set[type] | None = None
    if instance is not None:
        with suppress(Exception):  # It may be incomplete, and user code may raise anything.
            found = key_types(instance)
    if found is None:
        found = _key_types_of_blank(cls, key_types)
    return bool(found - {tree_util.FlattenedIndexKey})


def _key_types_of_blank(cls: type, key_types: Callable[[Any], set[type]]) -> set[type]:
    """Return the key types of a blank instance, whose attributes accept any use."""
    blank = _blank(cls)
    if hasattr(blank, "__dict__"):
        vars(blank)["x"] = _ANYTHING  # for functions that flatten all attributes
    for _ in range(200):
        try:
            return key_types(blank)
        except AttributeError as error:
            if error.obj is not blank or not error.name:
                _give_up(error)
            try:
                object.__setattr__(blank, error.name, _ANYTHING)
            except (AttributeError, TypeError) as refused:
                _give_up(refused)
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            _give_up(error)
    raise UnknownRegistrationError("it has too many attributes to try")


def _give_up(error: Exception) -> NoReturn:
    raise UnknownRegistrationError(
        f"flattening a blank instance of it failed with {type(error).__name__}: {error}"
    ) from error


def _blank(cls: type) -> Any:
    """Return an instance of *cls* without attributes."""
    for base in cls.__mro__:
        if base.__flags__ & HEAP_TYPE == 0:
            return base.__new__(cls)  # type: ignore[call-overload]
    raise AssertionError


class _Anything:
    """A value that accepts any use."""

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> _Anything:
        return self

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


_ANYTHING = _Anything()
