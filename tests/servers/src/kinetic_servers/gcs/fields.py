"""The parameter `fields`, which selects parts of a response."""

from __future__ import annotations

import re
from typing import Any, Final

from kinetic_servers.gcs.resources import KNOWN_FIELDS
from kinetic_servers.http.messages import RefusedError

_PART: Final = re.compile(r"([A-Za-z0-9_]+)(?:/([A-Za-z0-9_]+)|\(([A-Za-z0-9_,]+)\))?(?:,|$)")

Mask = dict[str, set[str]]
"""Selected key → its selected keys; empty means everything."""


def parse_fields(text: str) -> Mask:
    """Parse a selection such as `items(name,size),nextPageToken` or `items/name`; Google knows deeper ones.

    Fields that a resource, or a list of resources, may have can be selected.
    """
    parts = list(_PART.finditer(text))
    mask: Mask = {}
    for part in parts:
        below = mask.setdefault(part[1], set())
        below.update((part[2] or part[3] or "").split(",") if part[2] or part[3] else ())
    unknown = set(mask).union(*mask.values()) - KNOWN_FIELDS
    if unknown or "".join(part[0] for part in parts) != text:
        message = f"Invalid field selection {min(unknown, default=text)}"
        raise RefusedError(400, "invalidParameter", message, location=("parameter", "fields"))
    return mask


def select(data: dict[str, Any], mask: Mask) -> dict[str, Any]:
    """Return the selected parts of *data*."""
    return {key: _part(value, mask[key]) for key, value in data.items() if key in mask}


def _part(value: Any, keys: set[str]) -> Any:
    if isinstance(value, list):
        return [_part(item, keys) for item in value]
    if not keys or not isinstance(value, dict):
        return value
    return {key: value[key] for key in value if key in keys}
