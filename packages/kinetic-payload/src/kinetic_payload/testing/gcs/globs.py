"""The parameter `matchGlob` of lists of objects.

https://docs.cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob
"""

from __future__ import annotations

import re
from typing import Final

from kinetic_payload.testing.gcs.answers import invalid

_TOKEN: Final = re.compile(r"\*\*|\[[!^]?\]?[^]]*\]|\{[^{}]*\}|.", re.DOTALL)


def pattern_of(glob: str) -> re.Pattern[str]:
    """Return what matches the whole of a name that *glob* matches.

    `*` and `?` match no `/`, `**` matches everything, `[a-c]` and `[!a-c]` one character, `{a,b}` one
    of several globs. What Google does with escapes and with braces in braces is not known here.
    """
    return re.compile(_translated(glob), re.DOTALL)


def _translated(glob: str) -> str:
    return "".join(map(_piece, _TOKEN.findall(glob)))


def _piece(part: str) -> str:
    if part == "**":
        return ".*"
    if part == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part[0] == "{" and len(part) > 1:
        return f"(?:{'|'.join(map(_translated, part[1:-1].split(',')))})"
    if part[0] == "[" and len(part) > 2:
        negated = "^" if part[1] in "!^" else ""
        inner = re.sub(r"([\\\[&~|^])", r"\\\1", part[1 + len(negated) : -1])
        return f"(?!/)[{negated}{inner}]"
    if part in "[]{}\\":
        raise invalid(f"This server does not know {part!r} in matchGlob.")
    return re.escape(part)
