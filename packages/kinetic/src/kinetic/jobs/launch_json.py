"""VS Code's `launch.json`: put a configuration into its text, whose comments stay.

The file is JSON with comments and trailing commas. Only the place of the configuration is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kinetic.errors import InvalidRequestError

Configuration: TypeAlias = dict[str, Any]

_BLANK: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|[-+\w.]+')
_INDENT: Final = "    "


def with_configuration(text: str | None, configuration: Configuration) -> str:
    """Return *text* with *configuration* in place of the one of the same name, or else added.

    None stands for a file that does not exist.

    Raises:
        InvalidRequestError: The text is not that of a launch.json.
    """
    if text is None or not text.strip():
        return _rendered({"version": "0.2.0", "configurations": [configuration]}, "") + "\n"
    root = _Reader(text).read()
    if root.members is None:
        raise _unreadable("it is not an object", text, root.start)
    listed = root.members.get("configurations")
    if listed is None:
        member = f'"configurations": {_rendered([configuration], _INDENT)}'
        return _added(text, root, list(root.members.values()), member, _INDENT)
    if listed.items is None:
        raise _unreadable('"configurations" is not a list', text, listed.start)
    indent = _INDENT * 2
    for item in listed.items:
        name = (item.members or {}).get("name")
        if name is not None and name.value == configuration["name"]:
            new = _rendered(configuration, _indent_of(text, item.start))
            return text[: item.start] + new + text[item.end :]
    return _added(text, listed, listed.items, _rendered(configuration, indent), indent)


@dataclass
class _Node:
    """A value in the text, between two positions."""

    start: int
    end: int = 0
    value: object = None
    """Of a string; None for everything else."""
    items: list[_Node] | None = None
    members: dict[str, _Node] | None = None
    comma: bool = field(default=False)
    """Whether a comma follows the last item or member."""


class _Reader:
    """Reads a text into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> _Node:
        """Read the whole text."""
        root = self._value()
        if self._peek():
            raise self._unexpected()
        return root

    def _value(self) -> _Node:
        start = self._peek()
        node = _Node(self._at)
        if start == "[":
            node.items = []
            for _ in self._parts(node, "]"):
                node.items.append(self._value())
        elif start == "{":
            node.members = {}
            for _ in self._parts(node, "}"):
                name = self._value()
                if not isinstance(name.value, str):
                    raise self._unexpected()
                self._skip(":")
                node.members[name.value] = self._value()
        else:
            found = _SCALAR.match(self._text, self._at)
            if found is None:
                raise self._unexpected()
            self._at = found.end()
            if found[0].startswith('"'):
                try:
                    node.value = json.loads(found[0], strict=False)
                except ValueError:
                    raise self._unexpected() from None
        node.end = self._at
        return node

    def _parts(self, node: _Node, end: str) -> Iterator[None]:
        """Yield before each part of a list or an object, and read the commas between them."""
        self._at += 1
        while self._peek() != end:
            yield
            node.comma = self._peek() == ","
            if node.comma:
                self._at += 1
            elif self._peek() != end:
                raise self._unexpected()
        self._at += 1

    def _peek(self) -> str:
        """Return the next character that is neither blank nor in a comment; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _skip(self, character: str) -> None:
        if self._peek() != character:
            raise self._unexpected()
        self._at += 1

    def _unexpected(self) -> InvalidRequestError:
        return _unreadable("it is not JSON with comments", self._text, self._at)


def _added(text: str, parent: _Node, parts: list[_Node], new: str, indent: str) -> str:
    """Return *text* with *new* as the last part of *parent*, after its comments."""
    place = parent.start + 1 + len(text[parent.start + 1 : parent.end - 1].rstrip())
    before = text[:place]
    if parts and not parent.comma:
        last = max(part.end for part in parts)
        before = f"{text[:last]},{text[last:place]}"
    after = text[place:]
    if "\n" not in text[place : parent.end]:
        after = f"\n{_indent_of(text, parent.start)}{after.lstrip()}"
    return f"{before}\n{indent}{new}{after}"


def _indent_of(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _rendered(value: object, indent: str) -> str:
    return json.dumps(value, indent=_INDENT).replace("\n", f"\n{indent}")


def _unreadable(why: str, text: str, position: int) -> InvalidRequestError:
    line = text.count("\n", 0, position) + 1
    return InvalidRequestError(
        f"The launch.json cannot be changed: {why} (line {line}).",
        hint="Correct the file, or add the printed configuration to it yourself.",
    )
