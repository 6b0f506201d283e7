"""The source lines of code whose file stays behind: cells of notebooks, modules outside the project."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from types import CodeType


def lines_of(code: CodeType) -> str:
    """Return the lines that *code* was compiled from, first to last; "" where nobody knows them.

    No others: what else stands in a cell was not asked to travel.
    """
    if code.co_filename == "<string>":
        # What `exec` runs is called so, and from Python 3.13 on so is the text of `python -c`.
        return ""
    known = linecache.getlines(code.co_filename)
    return "".join(known[code.co_firstlineno - 1 : max(_line_numbers(code))])


def keep_lines(code: CodeType, text: str) -> None:
    """Let tracebacks, debuggers and `inspect.getsource` find *text* as the lines of *code*."""
    name, before = code.co_filename, code.co_firstlineno - 1
    entry = linecache.cache.get(name)
    known = list(entry[2]) if entry is not None and len(entry) == 4 else []
    new = text.splitlines(keepends=True)
    known += ["\n"] * (before + len(new) - len(known))
    known[before : before + len(new)] = new
    # Without a time it is not compared with a file, and stays.
    linecache.cache[name] = (sum(map(len, known)), None, known, name)


def _line_numbers(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (end for _, end, _, _ in code.co_positions() if end is not None)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _line_numbers(constant)
