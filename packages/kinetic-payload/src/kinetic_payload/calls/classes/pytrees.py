"""Pytree classes of JAX: read their registration by the client, and register them again in the job.

Reading never imports JAX. It uses the public interface of JAX where possible. That interface does not expose
the functions of a registration, so these are read from JAX's registry.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from operator import methodcaller
from types import FrameType, FunctionType
from typing import Any, Final

from kinetic_payload.calls.rebuild import builtin_base
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
    return not tree_util.all_leaves([builtin_base(cls).__new__(cls)])


def registration_of(cls: type) -> Registration:
    """Return how to repeat the registration of *cls*.

    Raises:
        UnknownRegistrationError: The registration cannot be read; the message says why.
    """
    entry = _entry(cls)
    if entry is None:
        raise UnknownRegistrationError("this version of JAX does not show its registration")
    flatten, unflatten = entry
    parts = _closure(flatten)
    if {"data_fields", "meta_fields"} <= parts.keys() and _is_of_jax(flatten):
        data, meta = parts["data_fields"], parts["meta_fields"]
        fields = getattr(cls, "__dataclass_fields__", {}).values()
        dropped = tuple(f.name for f in fields if f.init and f.name not in {*data, *meta})
        # Older versions of JAX lack the parameter.
        return (MODULE, "register_dataclass", data, meta, *((dropped,) if dropped else ()))
    if "flatten_with_keys" in parts and _is_of_jax(flatten):
        return MODULE, "register_pytree_with_keys", parts["flatten_with_keys"], unflatten
    tree_util = sys.modules["jax._src.tree_util"]
    keyed = getattr(tree_util, "_registry_with_keypaths", {}).get(cls)  # before JAX 0.4.36
    if keyed is not None:
        return MODULE, "register_pytree_with_keys", keyed[0], unflatten, flatten
    # An abstract class has no instances, so there are no children to name.
    if inspect.isabstract(cls) or _is_flattened_by(cls, flatten):
        return MODULE, "register_pytree_node", flatten, unflatten
    if isinstance(flatten, methodcaller) and hasattr(cls, "tree_flatten_with_keys"):
        return MODULE, "register_pytree_with_keys_class"
    raise UnknownRegistrationError("JAX does not show each of the functions that flatten it")


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


def _is_flattened_by(cls: type, flatten: Any) -> bool:
    """Tell whether JAX flattens *cls* by *flatten* also where it names children: it shows no other function."""
    method: Any = flatten
    if isinstance(flatten, methodcaller):
        method = getattr(cls, "tree_flatten", None)
    given = dict[str, Any]()  # What tells functions with the same code apart.
    if isinstance(method, partial):
        bound, method = method, method.func
        names = getattr(getattr(method, "__code__", None), "co_varnames", ())
        given = {**bound.keywords, **dict(zip(names, bound.args, strict=False))}
    given |= _closure(method)
    code = getattr(method, "__code__", None)
    called = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and not str(frame.f_globals.get("__name__")).startswith("jax."):
            same = all(frame.f_locals.get(name) is value for name, value in given.items())
            called.append(same and frame.f_code is code)

    def flatten_blank() -> None:
        with suppress(Exception):  # The instance has no attributes.
            sys.setprofile(note)
            sys.modules[MODULE].tree_flatten_with_path(blank)

    blank = builtin_base(cls).__new__(cls)
    # In a thread of its own: a profiler of this thread could not be set again.
    thread = threading.Thread(target=flatten_blank)
    thread.start()
    thread.join()
    return called[:1] == [True]
