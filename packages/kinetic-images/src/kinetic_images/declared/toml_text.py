"""TOML text: parse documents, find the lines of keys, write tables."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

from kinetic_images.declared.requirements import Place
from kinetic_images.errors import DependencyError


def parsed_toml(text: str, file: str) -> dict[str, Any]:
    """Parse *text*; *file* is its name for messages.

    Raises:
        DependencyError: *text* is not TOML.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DependencyError(
            f"{file} cannot be read: {error}.", hint="Correct it: it is not valid TOML."
        ) from None


def table(value: object) -> Mapping[str, Any]:
    """Return *value* if it is a table, else an empty table."""
    return value if isinstance(value, dict) else {}


def toml_text(values: Mapping[str, Any]) -> str:
    """Return a TOML document with *values*, one key on each line."""
    return "".join(f"{_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value: Any) -> str:
    """Return *value* as it is written after a key, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return repr(value)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else _quoted(text)


def _quoted(text: str) -> str:
    # JSON's escapes are valid in TOML, but JSON leaves the control character DEL unescaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_COMMENTED = re.compile(r"""(?:[^"'#]|"(?:\\.|[^"\\])*"|'[^']*')+\#(.*)""")


def _has(text: str) -> Callable[[str], bool]:
    """Return a function that returns whether a line has the string *text*."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return lambda line: (
        not line.lstrip().startswith("#") and (f'"{escaped}"' in line or f"'{text}'" in line)
    )


class Lines:
    """Find the line of a string, a key or a table, which a TOML reader does not report."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self._lines = re.split(r"\r\n|\r|\n", text)

    def text(self, text: str) -> Place:
        """Return the place of the string *text*."""
        return self._first(_has(text))

    def is_marked(self, text: str, mark: str) -> bool:
        """Return whether the comment at the end of a line with the string *text* contains the word *mark*."""
        return any(
            mark in comment[1].split()
            for line in filter(_has(text), self._lines)
            if (comment := _COMMENTED.fullmatch(line))
        )

    def key(self, name: str) -> Place:
        """Return the place of the key or the table *name*."""
        begins = re.compile(
            rf"\s*(?:\[+[^\]]*\b{re.escape(name)}(?![\w-])|[\"']?{re.escape(name)}[\"']?\s*[=.])"
        )
        return self._first(lambda line: bool(begins.match(line)))

    def key_of(self, header: str, name: str) -> Place:
        """Return the place of the key *name* in the table `[header]`, or of the table."""
        start = self.key(header)
        begins = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=")
        for number, line in enumerate(self._lines[start.line :], start.line + 1):
            if line.lstrip().startswith("["):
                break
            if begins.match(line):
                return Place(self.file, number)
        return start

    def entry(self, array: str, number: int) -> Place | None:
        """Return the place of the table `[[array]]` with the index *number*; None: it is written otherwise."""
        begins = re.compile(rf"\s*\[\[\s*{re.escape(array)}\s*\]\]")
        found = [line for line, text in enumerate(self._lines, 1) if begins.match(text)]
        return Place(self.file, found[number]) if number < len(found) else None

    def _first(self, fits: Callable[[str], bool]) -> Place:
        for number, line in enumerate(self._lines, 1):
            if not line.lstrip().startswith("#") and fits(line):
                return Place(self.file, number)
        return Place(self.file, 1)
