"""Scripts of packages: entry points become programs, and other scripts get a portable first line."""

from __future__ import annotations

import configparser
import re
from typing import Final

from kinetic_images.builders.layers.layout import WHITEOUT, fits

INTERPRETER: Final = b"#!/usr/bin/env python3"
_GROUPS: Final = ("console_scripts", "gui_scripts")
_TARGET: Final = re.compile(r"(?P<module>[\w.]+)\s*:\s*(?P<attr>[\w.]+)\s*(?:\[[^\]]*\])?")
_NAME: Final = re.compile(r"[^/\s\0][^/\r\n\0]*")
_LONGEST_FIRST_LINE: Final = 4096
_LONGEST_LINE: Final = 1000
"""`configparser` takes time by the square of the length of a line."""

_TEMPLATE: Final = """\
{interpreter}
import re
import sys
from {module} import {imported}
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])
    sys.exit({attr}())
"""


def scripts_of(entry_points: str) -> dict[str, bytes]:
    """Return the programs that the file `entry_points.txt` declares: name → content.

    Raises:
        ValueError: The file is malformed; the message says how.
    """
    if max(map(len, entry_points.split("\n"))) > _LONGEST_LINE:
        raise ValueError(f"entry_points.txt has a line of more than {_LONGEST_LINE} characters")
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(entry_points)
    except configparser.Error as error:
        raise ValueError(f"entry_points.txt is malformed: {error.message[:300]}") from error
    found = {}
    for group in _GROUPS:
        for name, value in parser.items(group) if parser.has_section(group) else ():
            valid = _NAME.fullmatch(name) and fits(name)
            if not valid or name in (".", "..") or name.startswith(WHITEOUT):
                raise ValueError(f"the entry point {name!r} is not a valid name of a program")
            found[name] = _script(name, value)
    return found


def _script(name: str, value: str) -> bytes:
    target = _TARGET.fullmatch(value.strip())
    parts = [*target["module"].split("."), *target["attr"].split(".")] if target else [""]
    if target is None or not all(part.isidentifier() for part in parts):
        raise ValueError(f"the entry point {name!r} does not name a function: {value[:300]!r}")
    return _TEMPLATE.format(
        interpreter=INTERPRETER.decode(),
        module=target["module"],
        imported=target["attr"].partition(".")[0],
        attr=target["attr"],
    ).encode()


def portable(beginning: bytes) -> bytes:
    """Return the *beginning* of a script with our interpreter if its first line is `#!python`.

    Wheels mark in this way the scripts in which an installer writes the interpreter's path.
    """
    line, end, rest = beginning.partition(b"\n")
    if not line.startswith(b"#!python") or len(line) > _LONGEST_FIRST_LINE or not (end or not rest):
        return beginning
    return INTERPRETER + end + rest
