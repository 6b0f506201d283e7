"""The functions that a pickle calls by name to rebuild its functions, modules, exceptions and types.

Their names and signatures are part of the wire format, and a stored value may be older than this version: do
not change them. If this module is moved, add its former name to `unpickle`.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from kinetic_payload.calls.unpickle import load
from kinetic_payload.errors import PayloadError

CACHED: Final = type(functools.lru_cache(lambda: None))
HEAP_TYPE: Final = 1 << 9
"""A flag of types that were made by Python code."""
_LONGEST_CHAIN: Final = 64

_project: str | None = None
_main: ModuleType | None = None


def set_up(project: str, main: ModuleType) -> None:
    """Set the project's folder in this process, and the module in which functions of `__main__` are rebuilt."""
    global _project, _main
    _project, _main = project, main


def project_paths() -> tuple[str, ...]:
    """Return the paths of the project's folder in this process, with links and without."""
    return () if _project is None else (_project, os.path.realpath(_project))


def lookup(module: ModuleType, qualname: str) -> Any:
    """Return the object *qualname* of *module*, without binding methods.

    Raises:
        AttributeError: There is none.
    """
    found: Any = module
    for name in qualname.split("."):
        owners = found.__mro__ if isinstance(found, type) else ()
        owner = next((base for base in owners if name in vars(base)), None)
        found = getattr(found, name) if owner is None else vars(owner)[name]
    return found


def wrappings(found: Any) -> Iterator[Any]:
    """Iterate over *found* and the chain of objects that it wraps, outermost first."""
    for _ in range(_LONGEST_CHAIN):
        yield found
        found = getattr(found, "__wrapped__", None)
        if found is None:
            return


def depth_of(obj: Any) -> int:
    """Return how many other objects *obj* wraps."""
    return sum(1 for _ in wrappings(obj)) - 1


def wraps(obj: Any) -> bool:
    """Tell whether *obj* wraps another object, without asking a `__getattr__`."""
    own = getattr(obj, "__dict__", None)
    return (isinstance(own, dict) and "__wrapped__" in own) or hasattr(type(obj), "__wrapped__")


def leads_to(obj: Any, module: str, qualname: str) -> bool:
    """Tell whether *obj* is the object *qualname* of *module*, or wrapped by it."""
    if "<locals>" in qualname:
        return False
    try:
        found = lookup(sys.modules[module], qualname)
    except (AttributeError, KeyError):
        return False
    return any(layer is obj for layer in wrappings(found))


def leads_plainly_to(obj: Any, module: str, qualname: str) -> bool:
    """Tell whether pickle itself would find *obj* by its name."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found is obj


def resolve(module: str, qualname: str, inner: int) -> Any:
    """Return the object behind *qualname* that wraps *inner* others.

    Count from the innermost object: in a job, a decorator may return the function without wrapping it.
    """
    from importlib import import_module

    chain = list(wrappings(lookup(import_module(module), qualname)))
    return chain[max(0, len(chain) - 1 - inner)]


def code_in_project(path: str, arguments: tuple[Any, ...]) -> CodeType:
    """Rebuild code of the project's file *path*, so that tracebacks and breakpoints find it here."""
    code = CodeType(*arguments)
    return code if _project is None else code.replace(co_filename=f"{_project}/{path}")


def code_with_lines(text: str, arguments: tuple[Any, ...]) -> CodeType:
    """Rebuild code that has no file here, and its source lines for tracebacks."""
    from kinetic_payload.calls.code import keep_lines

    code = CodeType(*arguments)
    keep_lines(code, text)
    return code


def function_in(
    module: ModuleType,
    code: CodeType,
    closure: tuple[CellType, ...] | None,
    main_name: str | None,
) -> FunctionType:
    """Make a function that runs in *module*; its state follows.

    *main_name* is its name in `__main__`, where other processes look for it.
    """
    function = FunctionType(code, vars(module), code.co_name, None, closure)
    register_in_main(main_name, function)
    return function


def cached_function(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Make a `functools.lru_cache` around *function*."""
    return functools.lru_cache(**parameters)(function)


def bare_wrapper(kind: type) -> Any:
    """Make an object of *kind*, such as `jax.custom_vjp`; its state, and the function that it wraps, follow."""
    return object.__new__(kind)


def builtin_base(kind: Any) -> Any:
    """Return the builtin type whose memory layout objects of *kind* have."""
    while kind.__flags__ & HEAP_TYPE:
        kind = kind.__base__
    return kind


def bare_error(kind: Any, args: tuple[Any, ...]) -> BaseException:
    """Make an exception of *kind* without its `__init__` and `__new__`; its state follows."""
    error: BaseException = builtin_base(kind).__new__(kind, *args)
    return error


def fill_error(error: BaseException, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Give an exception its attributes: those of slots and builtin bases, and those of `__dict__`."""
    from contextlib import suppress

    slots, attributes = state
    for name, value in slots.items():
        with suppress(AttributeError):  # A property without a setter has that name.
            object.__setattr__(error, name, value)
    if type(error).__setstate__ is not BaseException.__setstate__ and attributes:
        error.__setstate__(attributes)
    else:
        vars(error).update(attributes)


def named_type(
    kind: Callable[..., Any],
    module: str,
    identity: str | None,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> Any:
    """Make a `typing.NewType`, type alias or similar of *module*, unless this process has one of *identity*."""
    from cloudpickle import cloudpickle

    # `typing` assigns the new type to the calling module, and looks at the caller when it checks a bound.
    call = FunctionType(_call.__code__, {"__name__": module, "__builtins__": builtins})
    return cloudpickle._lookup_class_or_track(identity, call(kind, arguments, keywords))


def alias(name: str, module: str, values: list[Any]) -> Any:
    """Make the type alias *name* of *module*; its value follows, as the only one of *values*."""
    namespace = {"__name__": module, "values": values}
    exec(f"type {name} = values[0]", namespace)  # noqa: S102 - only the statement evaluates its value later
    return namespace[name]


def fill_alias(_: Any, state: tuple[list[Any], Any]) -> None:
    """Give an alias its value."""
    values, value = state
    values.append(value)


def _call(make: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return make(*arguments, **keywords)


class ModulePart(ModuleType):
    """The part of a module outside the snapshot that the call's code uses."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise AttributeError(
            f"{name!r} of the module {self.__name__!r} was not shipped. The module lies outside the "
            "project, so only values that the call's code names, and that can be pickled, are shipped. "
            "Move the module into the project, or install it."
        )

    def __reduce__(self) -> Any:
        # A returned value may contain one of its classes.
        contents = {key: value for key, value in vars(self).items() if key != "__builtins__"}
        return module_part, (self.__name__, {}), contents, None, None, fill_module


def module_part(name: str, attributes: dict[str, Any]) -> ModulePart:
    """Make the part of a module that travels by value; its contents follow."""
    module = ModulePart(name)
    vars(module).update(attributes)
    return module


def fill_module(module: ModuleType, contents: dict[str, Any]) -> None:
    """Give a part of a module its contents."""
    vars(module).update(contents)


def imported(name: str) -> ModuleType:
    """Return the module *name*; `__main__` is the one that was rebuilt here."""
    if name == "__main__" and _main is not None:
        return _main
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise PayloadError(
            f"The call needs the module {name!r}, which cannot be imported here: {error}.",
            hint="Add the package it comes from to the project's requirements.",
        ) from error


def register_in_main(main_name: str | None, made: Any) -> None:
    """Put the object *made* into `__main__` as *main_name*, unless that is None.

    Process pools send functions and classes by name, and import them from there.
    """
    if main_name is not None and _main is not None:
        vars(_main).setdefault(main_name, made)


def add_hints(hints: dict[str, bytes], written_by: str, find: Callable[[Any], Any]) -> None:
    """Add to `__main__` the globals that only annotations and `__subclasses__` refer to.

    Skip those that cannot be unpickled here: a job that does not use them must not fail because a package is
    missing.
    """
    from contextlib import suppress
    from io import BytesIO

    for name, pickled in hints.items():
        if _main is not None and name not in vars(_main):
            with suppress(Exception):
                vars(_main)[name] = load(BytesIO(pickled), written_by, find)
