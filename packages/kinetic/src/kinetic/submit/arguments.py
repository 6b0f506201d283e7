"""Whether a call's arguments fit its function, asked before anything is packaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from kinetic.errors import InvalidRequestError


def check_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Refuse arguments that *function* would refuse.

    Only a plain function is asked: what wraps another may take other arguments than its signature
    says.

    Raises:
        TypeError: One is missing or too many, as the call itself would say.
    """
    import inspect

    if not isinstance(function, FunctionType) or hasattr(function, "__signature__"):
        return
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}(): {error}") from None


def check_class_given(remote: object, args: tuple[Any, ...]) -> None:
    """Refuse a decorated classmethod that lost its class on the way.

    From Python 3.13 on `Class.method` of a classmethod is a plain method object, and what is asked of
    it (`Class.method.run_async`) it asks of the function, without saying for which class.

    Raises:
        InvalidRequestError: *remote* is a classmethod's function and *args* begin with no class.
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
        f"{name} is a classmethod, and on this Python its run_async does not know the class.",
        hint=f"Write {name}.__func__.run_async({owner.__name__}, ...).",
    )
