"""Escapes for valid names that a bucket cannot hold.

A name in a bucket has no line feed and no carriage return. Escaping keeps order and prefixes: a name that
sorts before another, or begins it, still does when both are escaped.
"""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.errors import InvalidRequestError
from kinetic_payload.stores.names import MAX_NAME

_ESCAPES: Final = {"\n": "\x0b\x01", "\x0b": "\x0b\x02", "\r": "\x0e\x01", "\x0e": "\x0e\x02"}
_UNESCAPED: Final = {escape: character for character, escape in _ESCAPES.items()}
_SPECIAL: Final = re.compile("[\n\x0b\r\x0e]")
_ESCAPE: Final = re.compile("\x0b[\x01\x02]|\x0e[\x01\x02]")


def escaped(text: str) -> str:
    """Escape *text*, a name or the beginning of one, for a bucket."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def unescaped(text: str) -> str:
    """Return the name that a bucket holds as *text*."""
    return _ESCAPE.sub(lambda match: _UNESCAPED[match[0]], text)


def escaped_name(name: str, prefix: str) -> str:
    """Return the name in the bucket for *name* below *prefix*.

    Raises:
        InvalidRequestError: It is too long for a bucket.
    """
    full = prefix + escaped(name)
    if len(full) > MAX_NAME // 4 and (size := len(full.encode())) > MAX_NAME:
        raise InvalidRequestError(
            f"The name {name[:200]!r} is too long: escaped, and with the store's prefix, it has {size} bytes and "
            f"the limit is {MAX_NAME}."
        )
    return full
