"""The parameter `fields`, which selects parts of a response."""

from __future__ import annotations

import re
from typing import Any, Final

from kinetic_servers.gcs.resources import KNOWN_FIELDS
from kinetic_servers.http.messages import RefusedError

_TOKEN: Final = re.compile(r"[A-Za-z0-9_*-]+|[(),/]")

Mask = dict[str, "Mask"]
"""Selected key → its selected keys; empty means everything."""


def parse_fields(text: str) -> Mask:
    """Parse a selection such as `items(name,size),nextPageToken` or `items/name`.

    Fields that a resource, or a list of resources, may have can be selected.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _invalid_selection(text)
    mask = _selection(tokens, text)
    if tokens:
        raise _invalid_selection(text)
    for part in (mask, *(mask.get(key, {}) for key in ("*", "items", "resource"))):
        if unknown := part.keys() - KNOWN_FIELDS - {"*"}:
            raise _invalid_selection(min(unknown))
    return mask


def _selection(tokens: list[str], text: str) -> Mask:
    """Take a selection from the start of *tokens*."""
    mask: Mask = {}
    while True:
        below = mask
        while True:
            if not tokens or tokens[0] in "(),/":
                raise _invalid_selection(text)
            below = below.setdefault(tokens.pop(0), {})
            if tokens[:1] != ["/"]:
                break
            tokens.pop(0)
        if tokens[:1] == ["("]:
            tokens.pop(0)
            below.update(_selection(tokens, text))
            if tokens[:1] != [")"]:
                raise _invalid_selection(text)
            tokens.pop(0)
        if tokens[:1] != [","]:
            return mask
        tokens.pop(0)


def select(data: Any, mask: Mask) -> Any:
    """Return the selected parts of *data*."""
    if not mask or mask.get("*") == {}:
        return data
    if isinstance(data, list):
        return [select(item, mask) for item in data]
    if not isinstance(data, dict):
        return data
    everywhere = mask.get("*")
    return {
        key: select(value, mask.get(key, everywhere or {}))
        for key, value in data.items()
        if key in mask or everywhere is not None
    }


def _invalid_selection(text: str) -> RefusedError:
    message = f"Invalid field selection {text}"
    return RefusedError(400, "invalidParameter", message, location=("parameter", "fields"))
