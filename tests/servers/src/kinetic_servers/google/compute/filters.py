"""The parameter `filter` of Compute's lists: <https://docs.cloud.google.com/compute/docs/reference/rest/v1/networks/list>."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from kinetic_servers.google.compute.resources import refused

_TERM: Final = re.compile(
    r"(?P<minus>-?)(?P<field>[A-Za-z][\w.-]*)\s*"
    r"(?:(?P<op>=|!=|:)\s*|\s(?P<word>eq|ne)\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s()]+)"
)
Matches = Callable[[dict[str, Any]], bool]


def matcher(text: str) -> Matches:
    """Return what decides whether a resource matches. Terms are joined by spaces, `AND` or `OR`, as at Google.

    Terms in parentheses may be joined with `OR` inside of them only.
    """
    groups: list[list[Matches]] = [[]]
    rest, connective = text.strip(), "AND"
    while rest:
        if match := re.match(r"(AND|OR)\s+", rest):
            connective, rest = match[1], rest[match.end() :]
            continue
        if match := re.match(r"\(([^()]*)\)\s*", rest):
            term = matcher(match[1])
        elif match := _TERM.match(rest):
            term = _term(match)
        else:
            raise refused(
                400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
            )  # fmt: skip
        if connective == "OR":
            groups[-1].append(term)
        else:
            groups.append([term])
        rest, connective = rest[match.end() :].lstrip(), "AND"
    return lambda item: all(
        any(term(item) for term in alternatives) for alternatives in groups if alternatives
    )


def _term(match: re.Match[str]) -> Matches:
    path, value = match["field"].split("."), match["value"].strip("\"'")
    operator = match["op"] or match["word"]

    def matches(item: dict[str, Any]) -> bool:
        found: Any = item
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        shown = str(found).lower() if isinstance(found, bool) else str(found)
        if found is None:
            equal = False
        elif match["word"]:
            equal = bool(re.fullmatch(value, shown))
        elif operator == ":":
            equal = value == "*" or value in (found if isinstance(found, list) else shown)
        else:
            equal = fnmatchcase(shown, value)
        return equal ^ (operator in ("!=", "ne")) ^ bool(match["minus"])

    return matches
