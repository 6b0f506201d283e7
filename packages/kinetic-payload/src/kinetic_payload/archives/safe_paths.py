"""Paths and links that an archive may hold: extracting them writes nothing outside of its folder."""

from __future__ import annotations

import re
from typing import Final

_ODD_PARTS: Final = frozenset(("", ".", ".."))
_ODD_CHARACTERS: Final = re.compile(r"[\0:\\]")


def unsafe_path(path: str) -> str | None:
    """Say why nothing may be extracted under the name *path*, or None.

    A name is also read as Windows would: an archive is safe wherever it is opened.
    """
    # Asked of every file of every submit: most are plain, which this tells fast.
    if _ODD_PARTS.isdisjoint(path.split("/")) and not _ODD_CHARACTERS.search(path):
        return None
    if not path or "\0" in path:
        return "it is not a name"
    if path[0] in "/\\" or (path[1:2] == ":" and re.match(r"[A-Za-z]:[/\\]", path)):
        return "it is absolute"
    if ".." in path.replace("\\", "/").split("/"):
        return "it leads upwards"
    if not {"", "."}.isdisjoint(path.split("/")):
        return "it is not in its plain form"
    return None


def link_goal(path: str, links: dict[str, str]) -> str | None:
    """Return where in its tree the link *path* leads, or None if it can lead out of it.

    Args:
        links: The targets of all links of the tree, since a link may lead through others.

    A link that leads in a circle leads nowhere; the answer is then *path* itself.
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
                return path  # Systems give up here or earlier.
            todo.extend(target.split("/")[::-1])
    return "/".join(here)
