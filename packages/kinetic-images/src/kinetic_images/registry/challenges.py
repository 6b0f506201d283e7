"""Challenges: how a registry, in a response with status 401, asks for credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - the grammar's word, RFC 9110
_PARAMETER: Final = re.compile(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))')
_SCHEME: Final = re.compile(rf"({_TOKEN})(?=\s|,|$)")
_LONGEST: Final = 4096


@dataclass(frozen=True)
class Challenge:
    """One way to authenticate."""

    scheme: str
    """In lower case: `bearer`, `basic`."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Names in lower case: `realm`, `service`, `scope`, `error`."""


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """Read the header `WWW-Authenticate`, which may list several. Skip what is malformed."""
    found: list[Challenge] = []
    position, text = 0, header[:_LONGEST]
    while position < len(text):
        if text[position] in " \t,":
            position += 1
        elif found and (match := _PARAMETER.match(text, position)):
            quoted = match[2]
            value = match[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1].parameters.setdefault(match[1].lower(), value)
            position = match.end()
        elif match := _SCHEME.match(text, position):
            found.append(Challenge(match[1].lower()))
            position = match.end()
        else:
            position += 1
    return tuple(found)
