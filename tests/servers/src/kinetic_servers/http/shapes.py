"""The shapes of JSON that an API of Google accepts."""

from __future__ import annotations

import re
from typing import Any

from kinetic_servers.http.messages import RefusedError

Shape = Any
"""A type, a list with the shape of its items, or a dictionary of shapes; `*` stands for all keys."""


def check_shape(given: Any, shape: Shape, path: str = "") -> None:
    """Refuse JSON with other fields or types than *shape*, in the words of Google's parser."""
    if isinstance(shape, dict) and isinstance(given, dict):
        for name, value in given.items():
            below = shape.get(name, shape.get("*"))
            if below is None:
                at = f" at '{path}'" if path else ""
                message = (
                    f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'
                )
                raise RefusedError(400, "badRequest", message)
            check_shape(value, below, f"{path}.{name}" if path else name)
    elif isinstance(shape, list) and isinstance(given, list):
        for number, value in enumerate(given):
            check_shape(value, shape[0], f"{path}[{number}]")
    elif given is not None and not (isinstance(shape, type) and _fits(given, shape)):
        raise RefusedError(400, "badRequest", f"Invalid value at '{path}': {given!r}")


def _fits(given: Any, kind: type) -> bool:
    if kind is int and isinstance(given, str):
        return bool(re.fullmatch(r"-?\d+", given))
    if isinstance(given, bool) or kind is bool:
        return isinstance(given, bool) and kind is bool
    return isinstance(given, (int, float) if kind is float else kind)
