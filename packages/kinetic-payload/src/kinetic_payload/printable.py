"""Text that is safe to print on a terminal: control characters are escaped.

A terminal executes control sequences: one may rename its window, hide or rewrite lines, or type input. So
text from outside passes through one of these functions before it is printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re

_ORDER: Final = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters that reorder text, or separate lines in a way that few programs expect."""
_TEXT: Final = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_ORDER}]"
"""All control characters except tab and line feed."""
_LINE: Final = rf"[\x00-\x1f\x7f-\x9f{_ORDER}]"
_LOG: Final = (
    r"(?P<colour>\x1b\[[0-9;:]*m)|(?P<sequence>\x1b\[[0-?]*[ -/]*[@-~])"
    rf"|[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f-\x9f{_ORDER}]"
)


def printable(text: str) -> str:
    """Return *text* with its control characters escaped, except tabs and line feeds."""
    # Fast, because nearly every text is printable, and all messages and fields of records come here.
    return text if text.isprintable() else _escape(_TEXT, text)


def printable_line(text: str) -> str:
    """Return *text* for a single line: line feeds and tabs are escaped as well."""
    return text if text.isprintable() else _escape(_LINE, text)


def printable_log(line: str) -> str:
    """Return a *line* of a log; keep its colours (SGR sequences), tabs and carriage returns.

    Remove other sequences that begin with `ESC [`, and escape other control characters.
    """
    return line if line.isprintable() else _escape(_LOG, line)


def _escape(pattern: str, text: str) -> str:
    import re  # Not at the top: every start imports this module, and few need `re` from it.

    return re.sub(pattern, _replacement, text)


def _replacement(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if any(groups.values()):
        return groups["colour"] or ""
    return repr(found[0])[1:-1]
