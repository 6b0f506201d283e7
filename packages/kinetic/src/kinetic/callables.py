"""What may be decorated, and what to do about what may not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, MethodType
from typing import Any, Final

from kinetic.errors import InvalidRequestError

_CACHED: Final = type(functools.lru_cache(lambda: None))
_LONGEST_CHAIN: Final = 64


def check_callable(function: object) -> Callable[..., Any]:
    """Return *function* if it can be run elsewhere.

    Raises:
        InvalidRequestError: It cannot; the hint says what to write instead.
    """
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise InvalidRequestError(
            f"@kinetic.run stands above @{kind}.",
            hint=f"Swap them: @{kind} comes first (outermost), @kinetic.run(...) below it.",
        )
    if isinstance(function, property | functools.cached_property):
        raise InvalidRequestError(
            f"A {type(function).__name__} is not a function.", hint="Decorate a method instead."
        )
    if not callable(function):
        raise InvalidRequestError(
            f"{_shown(function)} cannot be called, so it cannot be run.",
            hint="Decorate a function: @kinetic.run(...) above its def.",
        )
    if isinstance(function, type):
        raise InvalidRequestError(
            f"{function.__name__} is a class, and only functions can be run.",
            hint="Decorate one of its methods, or a function that makes and uses an instance.",
        )
    # What a wrapper (`functools.wraps`) makes of an async function or a cache is the wrapper's affair.
    for layer in _layers(function):
        _check_layer(layer)
    return function


def name_of(function: Callable[..., Any]) -> str:
    """Return the qualified name of *function*, or of what a partial or an object calls."""
    inner = unwrapped(function)
    name = getattr(function, "__qualname__", None) or getattr(inner, "__qualname__", None)
    return name if isinstance(name, str) and name else type(inner).__qualname__


def unwrapped(function: Any) -> Any:
    """Return the function behind partials, bound methods and callable objects."""
    *_, innermost = _layers(function)
    return innermost


def _layers(function: Any) -> Iterator[Any]:
    for _ in range(_LONGEST_CHAIN):
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif _is_callable_object(function):
            function = type(function).__call__
        else:
            return


def bound_arguments_problem(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """Return why *function* would refuse these arguments, or None if it would not.

    Asked before anything is packaged. Only a plain function is asked: what wraps another may take
    other arguments than its signature says.
    """
    if not isinstance(function, FunctionType) or hasattr(function, "__signature__"):
        return None
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None


def _check_layer(layer: Any) -> None:
    name = getattr(layer, "__qualname__", None) or type(layer).__qualname__
    if getattr(layer, "__kinetic__", False):
        raise InvalidRequestError(
            f"{name} is decorated with @kinetic.run already.", hint="Keep one of the two."
        )
    if isinstance(layer, _CACHED):
        raise InvalidRequestError(
            f"{name} is cached (functools.lru_cache or cache); its cache would not come along.",
            hint="Remove the cache, or cache what the job returns.",
        )
    if isinstance(layer, BuiltinFunctionType | BuiltinMethodType):
        raise InvalidRequestError(
            f"{name} is built into Python or an extension.",
            hint="Write a function of your own that calls it, and decorate that.",
        )
    if inspect.iscoroutinefunction(layer):
        raise InvalidRequestError(
            f"{name} is an async function.",
            hint="Decorate a plain function that calls asyncio.run(...); "
            "to wait without blocking here, use: await function.run_async(...)",
        )
    if inspect.isasyncgenfunction(layer):
        raise InvalidRequestError(
            f"{name} is an async generator.", hint="Return a list of what it yields instead."
        )
    if inspect.isgeneratorfunction(layer):
        raise InvalidRequestError(
            f"{name} is a generator function: its values would have to travel while it runs.",
            hint="Return a list instead of using yield.",
        )


def _is_callable_object(function: Any) -> bool:
    return isinstance(getattr(type(function), "__call__", None), FunctionType) and not isinstance(  # noqa: B004
        function, type
    )


def _shown(function: object) -> str:
    text = repr(function)
    return text if len(text) <= 60 else f"{text[:57]}…"
