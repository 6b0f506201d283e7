"""Values as text, and whether the text holds the whole value."""

from __future__ import annotations

import json
from math import isfinite
from types import NoneType
from typing import Any, Final

LIMIT: Final = 1_000_000
"""Characters of a value that are shown."""
_MAX_DEPTH: Final = 100
"""Levels of nested containers. Every parser of Python and JSON supports this depth."""


def text_of(value: Any) -> tuple[str, bool]:
    """Return the `repr` of *value*, and whether `ast.literal_eval` restores the value from it."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the user's own __repr__ may do anything
        return f"<{type(value).__qualname__} whose repr fails>", False
    if len(text) > LIMIT:
        return text[:LIMIT] + "…", False
    return text, is_literal(value)


def json_of(value: Any) -> str | None:
    """Return *value* as JSON from which it can be restored with its types; None if there is none."""
    if not is_literal(value):
        return None
    try:
        json.dumps(value, ensure_ascii=False).encode()  # Lone surrogates are not text.
        # ASCII only, so that it stays JSON whatever the encoding of a pipe.
        text = json.dumps(value, allow_nan=False)
        whole = repr(json.loads(text)) == repr(value)
    except (TypeError, ValueError):
        return None
    return text if whole else None


def value_document(value: Any) -> dict[str, Any]:
    """Return a document about *value*: its class, its repr, and itself if JSON can represent it."""
    document = {"type": class_of(value), "repr": text_of(value)[0]}
    try:
        json.dumps(value, allow_nan=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return document
    return {**document, "value": value}


def class_of(value: object) -> str:
    """Return the class of *value* with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def is_literal(value: Any, depth: int = 0) -> bool:
    """Return whether *value* consists only of values for which Python has literals.

    Types must match exactly: an instance of a subclass of `dict` does not count.
    """
    kind = type(value)
    if kind in (NoneType, bool, int, str, bytes):
        return True
    if kind is float:
        return isfinite(value)
    if kind is complex:
        return isfinite(value.real) and isfinite(value.imag)
    if depth == _MAX_DEPTH:
        return False
    if kind is dict:
        return all(is_literal(each, depth + 1) for pair in value.items() for each in pair)
    return kind in (list, tuple, set) and all(is_literal(each, depth + 1) for each in value)


def is_encodable(text: str, encoding: str) -> bool:
    """Return whether *encoding* has all characters of *text*."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
