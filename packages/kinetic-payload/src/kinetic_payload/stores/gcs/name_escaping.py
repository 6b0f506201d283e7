"""How a bucket spells those valid names that it cannot hold as they are.

A name in a bucket has no line feed and no carriage return. The escape keeps order and prefixes: what
sorts before, or begins, another name does so as well when both are spelled.
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
    """Return what a bucket calls *text*, a name or the beginning of one."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], text)


def unescaped(text: str) -> str:
    """Return the name that a bucket calls *text*."""
    return _ESCAPE.sub(lambda match: _UNESCAPED[match[0]], text)


def escaped_name(name: str, prefix: str) -> str:
    """Return what a bucket calls *name* below *prefix*.

    Raises:
        InvalidRequestError: That is longer than a name in a bucket may be.
    """
    full = prefix + escaped(name)
    if len(full) > MAX_NAME // 4 and (size := len(full.encode())) > MAX_NAME:
        raise InvalidRequestError(
            f"{name[:200]!r} is too long a name: with the store's prefix, and as a bucket spells it, "
            f"it has {size} bytes and the limit is {MAX_NAME}."
        )
    return full
