"""Names of objects: a name is also the path of its file in a folder store."""

from __future__ import annotations

from typing import Final

from kinetic_payload.errors import InvalidRequestError

MAX_NAME: Final = 1024
"""The most bytes of a name, in UTF-8."""

OWN_FOLDER: Final = ".kinetic-store"
"""The folder of temporary files and locks inside a folder store; no name begins with it."""


def check_name(name: str) -> str:
    """Return *name* if it is a valid object name.

    Raises:
        InvalidRequestError: It is not; the message gives the reason.
    """
    if problem := problem_of(name):
        raise InvalidRequestError(f"{name[:200]!r} is not a valid object name: {problem}.")
    return name


def is_name(text: str) -> bool:
    """Return whether *text* is a valid object name. Other programs may write other files and objects."""
    return problem_of(text) is None


def problem_of(name: str) -> str | None:
    """Return why *name* is no valid object name, or None."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not name:
        return "it is empty"
    if size > MAX_NAME:
        return f"it has {size} bytes and the limit is {MAX_NAME}"
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "it has an empty, '.' or '..' part"
    # A bucket accepts no line breaks, and a file system no NUL.
    if not {"\0", "\n", "\r"}.isdisjoint(name):
        return "it has a line break or a NUL"
    # Some file systems ignore case.
    if parts[0].lower() == OWN_FOLDER:
        return f"it begins with {OWN_FOLDER}"
    return None
