"""Text as a terminal may show it: control characters are escaped.

A terminal obeys what it is shown: a sequence may rename its window, hide or rewrite lines, or type
an answer. So text that was not made here is printed through one of these functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import re

_ORDER: Final = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""What reorders text, or separates lines as few programs expect."""
_TEXT: Final = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_ORDER}]"
"""All control characters but tab and line feed."""
_LINE: Final = rf"[\x00-\x1f\x7f-\x9f{_ORDER}]"
_LOG: Final = (
    r"(?P<colour>\x1b\[[0-9;:]*m)|(?P<sequence>\x1b\[[0-?]*[ -/]*[@-~])"
    rf"|[\x00-\x08\x0a-\x0c\x0e-\x1f\x7f-\x9f{_ORDER}]"
)


def printable(text: str) -> str:
    """Return *text* with its control characters escaped, but for tabs and line feeds."""
    # Nearly every text is; asked of all messages and of all fields of records.
    return text if text.isprintable() else _replaced(_TEXT, text)


def printable_line(text: str) -> str:
    """Return *text* as a part of one line: line feeds and tabs are escaped as well."""
    return text if text.isprintable() else _replaced(_LINE, text)


def printable_log(line: str) -> str:
    """Return a line of a log with its colours (SGR sequences), tabs and carriage returns.

    Other sequences that begin with `ESC [` are left out; other control characters are escaped.
    """
    return line if line.isprintable() else _replaced(_LOG, line)


def _replaced(pattern: str, text: str) -> str:
    import re  # Not at the top: errors stand on this, and a process that starts has no time for it.

    return re.sub(pattern, _harmless, text)


def _harmless(found: re.Match[str]) -> str:
    groups = found.groupdict()
    if any(groups.values()):
        return groups["colour"] or ""
    return repr(found[0])[1:-1]
