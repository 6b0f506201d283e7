"""VS Code's `launch.json`: put a configuration into its text, whose comments stay.

The file is JSON with comments and trailing commas. Only the place of the configuration is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kinetic.errors import InvalidRequestError

Configuration: TypeAlias = dict[str, Any]

_COMMENT: Final = r"//[^\n]*|/\*.*?\*/"
_TOKEN: Final = re.compile(
    rf'"(?:[^"\\\n]|\\.)*"|{_COMMENT}|,(?=(?>\s|{_COMMENT})*+[\]}}])', re.DOTALL
)
"""A string, a comment or a trailing comma."""
_BETWEEN: Final = re.compile(r"[\s,:]*")
_INDENT: Final = "    "


def with_configuration(text: str | None, configuration: Configuration) -> str:
    """Return *text* with *configuration* in place of the one of the same name, or else before the others.

    None stands for a file that does not exist.

    Raises:
        InvalidRequestError: The text is not that of a launch.json.
    """
    if text is None or not text.strip():
        return _rendered({"version": "0.2.0", "configurations": [configuration]}, "") + "\n"
    # Plain JSON with the same positions.
    plain = _TOKEN.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    try:
        root = json.loads(plain, strict=False)
    except ValueError as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise _unreadable("it is not JSON with comments", text, position) from None
    if not isinstance(root, dict):
        raise _unreadable("it is not an object", text, 0)
    begin = plain.index("{")
    members = _values(plain, begin)
    for (name, _, _), (listed, start, _) in zip(members, members, strict=True):
        if name != "configurations":
            continue
        if not isinstance(listed, list):
            raise _unreadable('"configurations" is not a list', text, start)
        for item, first, end in _values(plain, start):
            if isinstance(item, dict) and item.get("name") == configuration["name"]:
                line = text[text.rfind("\n", 0, first) + 1 : first]
                indent = line[: len(line) - len(line.lstrip())]
                return text[:first] + _rendered(configuration, indent) + text[end:]
        indent = _INDENT * 2
        new = _rendered(configuration, indent)
        return _inserted(text, start, new, indent, more=bool(listed))
    member = f'"configurations": {_rendered([configuration], _INDENT)}'
    return _inserted(text, begin, member, _INDENT, more=bool(root))


def _values(plain: str, start: int) -> Iterator[tuple[object, int, int]]:
    """Iterate over the names and values in the object or list at *start*, with their positions."""
    decoder, at = json.JSONDecoder(strict=False), start + 1
    while plain[at := _BETWEEN.match(plain, at).end()] not in "]}":  # type: ignore[union-attr]
        value, end = decoder.raw_decode(plain, at)
        yield value, at, end
        at = end


def _inserted(text: str, start: int, new: str, indent: str, *, more: bool) -> str:
    """Return *text* with *new* as the first part of the object or list at *start*, which has *more* parts."""
    end = "," if more else f"\n{indent.removesuffix(_INDENT)}"
    return f"{text[: start + 1]}\n{indent}{new}{end}{text[start + 1 :]}"


def _rendered(value: object, indent: str) -> str:
    return json.dumps(value, indent=_INDENT).replace("\n", f"\n{indent}")


def _unreadable(why: str, text: str, position: int) -> InvalidRequestError:
    line = text.count("\n", 0, position) + 1
    return InvalidRequestError(
        f"The launch.json cannot be changed: {why} (line {line}).",
        hint="Correct the file, or add the printed configuration to it yourself.",
    )
