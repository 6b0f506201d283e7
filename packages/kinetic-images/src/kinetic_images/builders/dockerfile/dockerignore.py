"""`.dockerignore`: which files of a folder a build does not get.

https://docs.docker.com/build/concepts/context/#dockerignore-files
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from posixpath import normpath


def ignored_by(lines: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a path, relative and with `/`, is left out by *lines*.

    A pattern that matches a folder matches everything in it. The last pattern that matches decides.
    """
    rules = []
    for line in lines:
        text = line.strip()
        if not text or line.startswith("#"):
            continue
        pattern = normpath(text.removeprefix("!").strip()).lstrip("/")
        if pattern not in ("", "."):
            rules.append((_expression(pattern), text.startswith("!")))

    def is_ignored(path: str) -> bool:
        parts = path.split("/")
        places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        ignored = False
        for expression, kept in rules:
            if any(map(expression.fullmatch, places)):
                ignored = not kept
        return ignored

    return is_ignored


_TOKEN = re.compile(r"\*\*/?|\*|\?|\[\^?[^\]]*\]|\\.|.", re.DOTALL)


def _expression(pattern: str) -> re.Pattern[str]:
    """Return a pattern of Go's `filepath.Match`, with `**` for any number of folders, as an expression."""
    folders = "(?:.*/)?"
    special = {"**/": folders, "**": folders, "*": "[^/]*", "?": "[^/]"}
    tokens = _TOKEN.findall(pattern)
    last = ".*" if tokens[-1] in ("**", "**/") else None
    parts = [
        special.get(token)
        or (token if token.startswith("[") and len(token) > 2 else re.escape(token[-1]))
        for token in tokens
    ]
    return re.compile("".join([*parts[:-1], last or parts[-1]]), re.DOTALL)
