"""Object names: validation, and escaping of names as paths of a folder store.

An ordinary name is its own path, so that a folder store can be read with `ls`. Three things are escaped:
NUL, `%` where it would look like an escape, and the dot of parts that begin like the store's own folder. No two
names have the same path.
"""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.errors import InvalidRequestError

MAX_NAME: Final = 1024
"""The most bytes of a name, in UTF-8."""

OWN_FOLDER: Final = ".kinetic-store"
"""The folder of temporary files and locks inside a folder store; no name has this path."""


def check_name(name: str) -> str:
    """Return *name* if it is a valid object name.

    Raises:
        InvalidRequestError: It is not; the message gives the reason.
    """
    problem = ""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        problem, size = "it is not valid Unicode", 0
    if not name:
        problem = "it is empty"
    elif size > MAX_NAME:
        problem = f"it has {size} bytes and the limit is {MAX_NAME}"
    elif not problem and any(part in ("", ".", "..") for part in name.split("/")):
        problem = "it has an empty, '.' or '..' part"
    if problem:
        raise InvalidRequestError(f"{name[:200]!r} is not a valid object name: {problem}.")
    return name


def part_to_path(part: str) -> str:
    """Return the relative path of one part of a name."""
    text = part
    if "%" in part or "\0" in part:
        text = re.sub(r"%(?=00|25|2E)", "%25", part).replace("\0", "%00")
    return f"%2E{text[1:]}" if text[: len(OWN_FOLDER)].lower() == OWN_FOLDER else text


def path_to_part(path: str) -> str | None:
    """Return the part of a name whose path is *path*, the inverse of `part_to_path`; None if there is none."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return None
    text = re.sub(r"%(00|25|2E)", lambda match: chr(int(match[1], 16)), path)
    return text if part_to_path(text) == path else None


def name_to_path(name: str) -> str:
    """Return the path of the valid *name* below a folder store's root."""
    return "/".join(map(part_to_path, name.split("/")))
