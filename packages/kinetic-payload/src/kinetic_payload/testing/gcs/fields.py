"""The parameter `fields`, which selects parts of a response."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from kinetic_payload.testing.gcs.answers import ApiError

_TOKEN: Final = re.compile(r"[A-Za-z0-9_*-]+|[(),/]")

_RESOURCES: Final = ("*", "items", "resource")

Mask = dict[str, "Mask"]
"""Selected key → its selected keys; empty means everything."""


def parse_fields(text: str, known: Collection[str]) -> Mask:
    """Parse a selection such as `items(name,size),nextPageToken` or `items/name`.

    The *known* fields of resources, and of lists of them, can be selected.
    """
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text):
        raise _invalid_selection(text)
    mask, rest = _selection(tokens, text)
    if rest:
        raise _invalid_selection(text)
    for part in (mask, *(mask.get(key, {}) for key in _RESOURCES)):
        if unknown := [key for key in part if key != "*" and key not in known]:
            raise _invalid_selection(unknown[0])
    return mask


def _selection(tokens: list[str], text: str) -> tuple[Mask, list[str]]:
    mask: Mask = {}
    while True:
        below: Mask = mask
        while True:
            if not tokens or tokens[0] in "(),/":
                raise _invalid_selection(text)
            key, tokens = tokens[0], tokens[1:]
            below = below.setdefault(key, {})
            if tokens[:1] != ["/"]:
                break
            tokens = tokens[1:]
        if tokens[:1] == ["("]:
            inner, tokens = _selection(tokens[1:], text)
            if tokens[:1] != [")"]:
                raise _invalid_selection(text)
            below.update(inner)
            tokens = tokens[1:]
        if tokens[:1] != [","]:
            return mask, tokens
        tokens = tokens[1:]


def select(data: Any, mask: Mask) -> Any:
    """Return the selected parts of *data*."""
    if not mask or ("*" in mask and not mask["*"]):
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


def _invalid_selection(text: str) -> ApiError:
    return ApiError(
        400,
        "invalidParameter",
        f"Invalid field selection {text}",
        location=("parameter", "fields"),
    )
