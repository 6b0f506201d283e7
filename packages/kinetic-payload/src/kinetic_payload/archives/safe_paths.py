"""Safe paths and links: extracting them writes nothing outside of the target folder."""

from __future__ import annotations

import re
from typing import Final

_ODD_PARTS: Final = frozenset(("", ".", ".."))
_ODD_CHARACTERS: Final = re.compile(r"[\0:\\]")


def unsafe_path(path: str) -> str | None:
    """Return why *path* is not safe to extract, or None.

    The rules of Windows are applied as well: an archive is safe on every system.
    """
    # Called for every file of every submit: a fast check for plain paths, which most are.
    if _ODD_PARTS.isdisjoint(path.split("/")) and not _ODD_CHARACTERS.search(path):
        return None
    if not path or "\0" in path:
        return "it is empty or contains a NUL"
    if path[0] in "/\\" or (path[1:2] == ":" and re.match(r"[A-Za-z]:[/\\]", path)):
        return "it is absolute"
    if ".." in path.replace("\\", "/").split("/"):
        return "it contains '..'"
    if not {"", "."}.isdisjoint(path.split("/")):
        return "it contains '.' or an empty part"
    return None


def link_goal(path: str, links: dict[str, str]) -> str | None:
    """Return the path in its tree that the link *path* leads to, or None if it may lead outside.

    For a link that leads in a circle, return *path* itself.

    Args:
        links: The targets of all links of the tree, since a link may lead through others.
    """
    if links[path][:1] in ("", "/") or "\0" in links[path]:
        return None
    here = path.split("/")[:-1]
    todo = links[path].split("/")[::-1]
    followed = 0
    while todo:
        part = todo.pop()
        if part == "..":
            if not here:
                return None
            here.pop()
        elif part not in ("", "."):
            target = links.get("/".join([*here, part]))
            if target is None:
                here.append(part)
                continue
            followed += 1
            if target.startswith("/"):
                return None
            if followed > 40:
                return path  # Operating systems give up here or earlier.
            todo.extend(target.split("/")[::-1])
    return "/".join(here)
