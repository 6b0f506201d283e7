"""Find the piece that cannot be pickled: its argument, keys and attributes, and what to do about it."""

from __future__ import annotations

import functools
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any, Final, NamedTuple

from kinetic_payload.calls.annotations import annotations_of
from kinetic_payload.calls.classes.introspection import own_attributes

Probe = Callable[[Any], Exception | None]
"""Pickles one object only to see whether that works, and returns the error, if any."""
GlobalsOf = Callable[[FunctionType], Mapping[str, Any]]
"""The globals that travel with a function."""

_DEEPEST: Final = 60
_ATOMS: Final = (str, bytes, int, float, complex, bool, type(None))


class Culprit(NamedTuple):
    """The smallest piece that cannot be pickled."""

    path: str
    """From the argument to the piece: `cfg['deep'][0]`, `train (global 'LOCK')`."""
    piece: Any
    error: Exception


def find_culprit(name: str, value: Any, probe: Probe, globals_of: GlobalsOf) -> Culprit | None:
    """Descend from *value*, called *name*, to the piece that cannot be pickled; None if all of it can."""
    error = probe(value)
    if error is None:
        return None
    path, ancestors = name, {id(value)}
    for _ in range(_DEEPEST):
        for label, child in _children(value, globals_of):
            if isinstance(child, _ATOMS) or id(child) in ancestors:
                continue
            problem = probe(child)
            if problem is not None:
                path, value, error = path + label, child, problem
                ancestors.add(id(child))
                break
        else:
            break
    return Culprit(path, value, error)


def variables_of(
    function: Any, globals_of: GlobalsOf, seen: set[int] | None = None
) -> Iterator[tuple[str, Any]]:
    """Iterate over the variables that travel with *function* and with the functions that it uses, by name."""
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for label, child in _children_of_function(function, globals_of):
        inner = getattr_static(child, "__wrapped__", child)
        if isinstance(inner, FunctionType):
            yield from variables_of(inner, globals_of, seen)
        else:
            yield f"{label.strip(' ()')} of {function.__qualname__}", child


def _children(value: Any, globals_of: GlobalsOf) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in list(value.items()):
            yield f" (key {_short(key)})", key
            yield f"[{_short(key)}]", item
    elif isinstance(value, list | tuple | deque):
        names = getattr(value, "_fields", None)
        for index, item in enumerate(list(value)):
            yield (f".{names[index]}" if names else f"[{index}]"), item
    elif isinstance(value, set | frozenset):
        for item in list(value):
            yield " (member of the set)", item
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        for index, item in enumerate(value.args):
            yield f".args[{index}]", item
        for key, item in value.keywords.items():
            yield f".keywords[{key!r}]", item
    elif isinstance(value, MethodType):
        yield ".__self__", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, FunctionType):
        yield from _children_of_function(value, globals_of)
    elif isinstance(value, type):
        for key, item in list(own_attributes(value)):
            yield f".{key}", getattr(item, "__func__", item)
    else:
        yield from _children_of_object(value)


def _children_of_function(
    function: FunctionType, globals_of: GlobalsOf
) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f" (closure variable {name!r})", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for name, item in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False):
        yield f" (default of {name!r})", item
    for name, item in (function.__kwdefaults__ or {}).items():
        yield f" (default of {name!r})", item
    for name, item in globals_of(function).items():
        yield f" (global {name!r})", item
    for name, item in vars(function).items():
        yield f".{name}", item
    for name, item in annotations_of(function).items():
        yield f" (annotation of {name!r})", item


def _children_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    try:
        reduced = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - user code may raise anything
        return
    if not isinstance(reduced, tuple):
        return
    _, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            for name, item in list(part.items()):
                yield f".{name}", item
        elif part is not None:
            yield " (its state)", part
    for index, item in enumerate(items or ()):
        yield f"[{index}]", item
    for key, item in pairs or ():
        yield f" (key {_short(key)})", key
        yield f"[{_short(key)}]", item
    names = getattr(value, "args", None) if isinstance(value, BaseException) else None
    for index, item in enumerate(arguments):
        if item is not type(value):
            yield (f".args[{index}]" if names else f" (part {index + 1} of it)"), item


def _short(key: object) -> str:
    try:
        text = repr(key)
    except Exception:  # noqa: BLE001 - user code
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 40 else text[:37] + "…"


def describe(piece: Any) -> str:
    """Describe *piece* in words."""
    if isinstance(piece, FunctionType):
        return f"the function {piece.__qualname__}"
    if isinstance(piece, type):
        return f"the class {piece.__qualname__}"
    name = _kind_name(type(piece))
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _kind_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


_CREATE_INSIDE: Final = "Create it inside the function"
_ADVICE: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("RecursionError", "deep recursion", "recursion depth"),
        "It is nested too deeply to pickle. Flatten it, or write it to a file and pass that as "
        "kinetic.Data.",
    ),
    (
        ("_thread.", "threading.", "multiprocessing.", "asyncio.", "concurrent.futures", "_queue."),
        f"{_CREATE_INSIDE}: locks, threads, queues and pools belong to one process. In a class, drop it "
        "in __getstate__ and create it again in __setstate__.",
    ),
    (
        ("_io.", "io.", "tempfile.", "zipfile.", "tarfile.", "h5py."),
        "Pass the file's path as kinetic.Data, and open it inside the function.",
    ),
    (
        ("generator", "async_generator", "coroutine", "itertools.", "map", "filter", "zip"),
        "Pass a list of its items, or create it inside the function.",
    ),
    (
        (
            "socket.",
            "_ssl.",
            "ssl.",
            "sqlite3.",
            "psycopg",
            "requests.",
            "http.",
            "google.",
            "boto",
        ),
        f"{_CREATE_INSIDE}: a connection belongs to one process. Pass what is needed to connect.",
    ),
    (
        ("jax", "Tracer", "torch.", "tensorflow.", "keras.", "cupy."),
        f"{_CREATE_INSIDE}: devices, and objects on them, belong to one process. Pass arrays as NumPy "
        "arrays (jax.device_get), and models as their weights.",
    ),
    (("module",), "Import it inside the function."),
    (("weakref", "frame", "traceback"), "Pass the object itself, or leave it out in __getstate__."),
)
_ANY: Final = (
    f"{_CREATE_INSIDE}, pass what it is created from, or give its class a __reduce__, or a __getstate__ "
    "that leaves out the part that cannot be pickled."
)


def advise(culprit: Culprit) -> str:
    """Return the hint for *culprit*."""
    name = _kind_name(type(culprit.piece))
    if "recursion" in str(culprit.error).lower():
        name = "RecursionError"
    for beginnings, advice in _ADVICE:
        if name.startswith(beginnings):
            return advice
    return _ANY
