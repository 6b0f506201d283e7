"""Arguments of calls: numbers, JSON, and names of buckets and objects."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kinetic_servers.gcs.errors import invalid, required
from kinetic_servers.http.messages import Call, RefusedError

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
LONGEST_NAME: Final = 1024


def number(call: Call, name: str) -> int | None:
    """Return a parameter of the query that must be a number, or None."""
    try:
        return int(call.arg(name)) if name in call.query else None
    except ValueError:
        raise invalid(f"Invalid value for {name}: '{call.arg(name)}'.") from None


async def json_of(call: Call) -> dict[str, Any]:
    """Return the body as a JSON object."""
    return json_object(await call.read())


def json_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty for no data, and for `null`, which Go's clients send."""
    try:
        found = json.loads(data) if data.strip() else {}
    except ValueError:
        found = False
    if found is not None and not isinstance(found, dict):
        raise RefusedError(400, "parseError", "Parse Error")
    return found or {}


def check_bucket_name(name: str) -> None:
    """Refuse an invalid name of a bucket."""
    if not _BUCKET.fullmatch(name) or name.startswith("goog") or "google" in name:
        raise invalid(f"Invalid bucket name: '{name}'")


def check_object_name(name: str) -> None:
    """Refuse an invalid name of an object."""
    if not name:
        raise required("Required parameter: name")
    size = len(name.encode("utf-8"))
    if size > LONGEST_NAME:
        raise invalid(
            f"The maximum object length is {LONGEST_NAME} characters, but got a name with "
            f"{size} characters: ''{name[:64]}...''"
        )
    if "\r" in name or "\n" in name:
        raise invalid(f"Disallowed unicode characters present in object name '{name}'")
    if name in (".", "..") or name.startswith(".well-known/acme-challenge/"):
        raise invalid(f"Invalid object name: '{name}'")
