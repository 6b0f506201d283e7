"""Check whether a function can run as a job, and its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType
from typing import Any, Final

from kinetic.errors import InvalidRequestError

# Flags of code objects (`inspect.CO_*`); importing inspect would cost more than all of this module.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
_LONGEST_CHAIN: Final = 64


class InvalidCallableError(InvalidRequestError, TypeError):
    """The decorated object cannot run as a job."""


def check_callable(function: object) -> Callable[..., Any]:
    """Return *function* if it can run as a job.

    Raises:
        InvalidCallableError: It cannot; the message says what to do.
    """
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise InvalidCallableError(
            f"@kinetic.run is applied to a {kind} object, which is not a function.",
            hint=f"Put @{kind} on top and @kinetic.run(...) directly above the def.",
        )
    if isinstance(function, property):
        raise InvalidCallableError(
            "A property cannot run as a job.", hint="Decorate a function or a method."
        )
    if isinstance(function, type):
        raise InvalidCallableError(
            f"{_name(function)} is a class, not a function.",
            hint="Decorate a function that makes the object and uses it.",
        )
    if not callable(function):
        raise InvalidCallableError(
            f"A {type(function).__name__} cannot be called, so it cannot run as a job.",
            hint="Decorate a function.",
        )
    # The function inside a wrapper (`functools.wraps`) is not checked: the wrapper may run an async one.
    for layer in _layers(function):
        if hasattr(layer, "cache_info") and hasattr(layer, "cache_clear"):
            raise InvalidCallableError(
                f"{_name(layer)} is wrapped by functools.lru_cache, whose cache the job does not have.",
                hint="Put @functools.lru_cache on top and @kinetic.run(...) below it.",
            )
        if isinstance(layer, BuiltinFunctionType | BuiltinMethodType):
            raise InvalidCallableError(
                f"{_name(layer)} is built into Python or into an extension.",
                hint="Decorate a function of your own that calls it.",
            )
        flags = int(getattr(getattr(layer, "__code__", None), "co_flags", 0))
        if flags & (_COROUTINE | _ASYNC_GENERATOR):
            raise InvalidCallableError(
                f"{_name(layer)} is an async function; a job runs plain functions only.",
                hint="Decorate a plain function that calls asyncio.run(...) inside. To wait for a job "
                "without blocking: await function.run_async(...).",
            )
        if flags & _GENERATOR:
            raise InvalidCallableError(
                f"{_name(layer)} is a generator; a job returns one value when it ends.",
                hint="Return a list, or write to KINETIC_OUTPUT_DIR as you go.",
            )
    return function


def name_of(function: object) -> str:
    """Return the plain name of *function*, for job ids."""
    layers = list(_layers(function))
    name = getattr(layers[-1], "__name__", None) or type(layers[-1]).__name__
    if name == "__call__" and len(layers) > 1:
        return type(layers[-2]).__name__
    return "lambda" if name == "<lambda>" else str(name)


def check_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Refuse arguments that *function* would refuse.

    Only a plain function is checked: a wrapper may take other arguments than its signature says.

    Raises:
        TypeError: One is missing or too many; the message is that of the call itself.
    """
    import inspect

    if not isinstance(function, FunctionType) or hasattr(function, "__signature__"):
        return
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}(): {error}") from None


def check_class_given(remote: object, args: tuple[Any, ...]) -> None:
    """Refuse a decorated classmethod whose class is missing from the arguments.

    From Python 3.13 on `Class.method` of a classmethod is a plain method object, which looks up
    attributes such as `run_async` on its function and so loses the class.

    Raises:
        InvalidRequestError: *remote* is a classmethod's function, and its class is not the first of *args*.
    """
    import sys

    module, name = getattr(remote, "__module__", None), getattr(remote, "__qualname__", "")
    owner: Any = sys.modules.get(module or "")
    *path, attribute = name.split(".")
    for part in path:
        owner = getattr(owner, part, None)
    if not isinstance(owner, type):
        return
    method = vars(owner).get(attribute)
    if not isinstance(method, classmethod) or method.__func__ is not remote:
        return
    if args and isinstance(args[0], type) and issubclass(args[0], owner):
        return
    raise InvalidRequestError(
        f"{name} is a classmethod, and on this Python its run_async does not get the class.",
        hint=f"Write {name}.__func__.run_async({owner.__name__}, ...).",
    )


def _layers(function: Any) -> Iterator[Any]:
    """Iterate over *function* and the functions that partials, bound methods and callable objects call."""
    for _ in range(_LONGEST_CHAIN):
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(method := getattr(type(function), "__call__", None), FunctionType):  # noqa: B004
            function = method
        else:
            return


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
