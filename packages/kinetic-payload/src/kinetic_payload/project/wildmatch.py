"""Patterns of ignore files, with the meaning that git's `wildmatch.c` gives them, as regular expressions.

Git compares bytes: a `?` is one byte, not one character, and a class holds bytes. A pattern that
git cannot parse (an unfinished class, an unknown `[:name:]`, a backslash at the end) matches nothing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from typing import Final

_SPECIAL: Final = re.compile(rb"[*?\[\\]")
"""Characters with a special meaning in patterns."""

_SLASH, _STAR, _BACKSLASH = b"/*\\"
_OPEN, _CLOSE, _DASH, _COLON, _QUESTION = b"[]-:?"
_LOWER: Final = string.ascii_lowercase.encode()
_UPPER: Final = string.ascii_uppercase.encode()

# Git's own character tables: ASCII only, and neither \v nor \f is a space.
_CLASSES: Final = {
    name.encode(): frozenset(characters)
    for name, characters in {
        "alnum": (string.ascii_letters + string.digits).encode(),
        "alpha": string.ascii_letters.encode(),
        "blank": b" \t",
        "cntrl": bytes((*range(32), 127)),
        "digit": string.digits.encode(),
        "graph": bytes(range(33, 127)),
        "lower": _LOWER,
        "print": bytes(range(32, 127)),
        "punct": string.punctuation.encode(),
        "space": b" \t\n\r",
        "upper": _UPPER,
        "xdigit": string.hexdigits.encode(),
    }.items()
}

_ONE_NAME: Final = b"[^/]*"
"""`*`: any bytes of one name."""
_FOLDERS: Final = b"(?:[^/]*/)*"
"""`**/`: any number of folders."""
_ANYTHING: Final = b".*"
"""`**`: any bytes."""
_WIDE: Final = (_FOLDERS, _ANYTHING)


def name_expression(pattern: bytes, *, ignore_case: bool = False) -> bytes | None:
    """Return an expression for `fullmatch` with names, or None if *pattern* matches none.

    It needs the flag `re.DOTALL`, and to *ignore_case* `re.IGNORECASE`.
    """
    return _expression(b"", pattern, ignore_case, slashes=False)


def path_expression(pattern: bytes, *, ignore_case: bool = False) -> bytes | None:
    """Return the same as `name_expression`, for paths."""
    # Git compares the text before the first special character separately. So a pattern begins after
    # it, and the stars of `ab**/c` are at the beginning of one: it matches `abc` and `abx/y/c`.
    special = _SPECIAL.search(pattern)
    start = special.start() if special else len(pattern)
    return _expression(pattern[:start], pattern[start:], ignore_case, slashes=True)


def _expression(text: bytes, pattern: bytes, ignore_case: bool, *, slashes: bool) -> bytes | None:
    try:
        parts = list(_parts(pattern, ignore_case, slashes=slashes))
    except ValueError:
        return None
    return re.escape(text) + _joined(parts, _WIDE)


def _parts(pattern: bytes, ignore_case: bool, *, slashes: bool) -> Iterator[bytes]:
    """Yield an expression for each byte or class of *pattern*; for stars, `_ONE_NAME` or one of `_WIDE`.

    Raises:
        ValueError: The pattern matches nothing.
    """
    at, end = 0, len(pattern)
    while at < end:
        byte = pattern[at]
        at += 1
        if byte == _STAR:
            first = at - 1
            while pattern[at : at + 1] == b"*":
                at += 1
            whole = at - first > 1 and (first == 0 or pattern[first - 1] == _SLASH)
            if not (slashes and whole):
                yield _ONE_NAME
            elif pattern[at : at + 1] == b"/":
                at += 1
                yield _FOLDERS
            elif at == end or pattern[at : at + 2] == b"\\/":
                yield _ANYTHING
            else:
                yield _ONE_NAME
        elif byte == _QUESTION:
            yield b"[^/]"
        elif byte == _OPEN:
            expression, at = _class(pattern, at, ignore_case)
            yield expression
        else:
            if byte == _BACKSLASH:
                byte, at = _escaped(pattern, at)
                if ignore_case and byte in _UPPER:
                    raise ValueError("git compares the escaped byte with lower-case bytes")
            yield re.escape(bytes((byte,)))


def _escaped(pattern: bytes, at: int) -> tuple[int, int]:
    """Return the byte after a backslash, and where the pattern goes on."""
    if at == len(pattern):
        raise ValueError("there is nothing after the backslash")
    return pattern[at], at + 1


def _class(pattern: bytes, at: int, ignore_case: bool) -> tuple[bytes, int]:
    """Return the expression of the class that begins at *at*, after its `[`, and its end."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    first = at
    members: set[int] = set()
    previous = 0  # The byte with which a range may begin; 0 if there is none.
    while at < len(pattern) and (pattern[at] != _CLOSE or at == first):
        byte = pattern[at]
        at += 1
        if byte == _DASH and previous and pattern[at : at + 1] not in (b"", b"]"):
            byte, at = pattern[at], at + 1
            if byte == _BACKSLASH:
                byte, at = _escaped(pattern, at)
            span = range(previous, byte + 1)
            members.update(span)
            if ignore_case:
                members.update(bytes(span).lower())
            previous = 0
            continue
        if byte == _OPEN and pattern[at : at + 1] == b":":
            close = pattern.index(b"]", at)
            name = pattern[at + 1 : close - 1]
            if close > at + 1 and pattern[close - 1] == _COLON:
                if name not in _CLASSES:
                    raise ValueError("there is no such class of characters")
                members.update(_CLASSES[name])
                if ignore_case and name == b"upper":
                    members.update(_LOWER)
                at, previous = close + 1, 0
                continue
        elif byte == _BACKSLASH:
            byte, at = _escaped(pattern, at)
        members.add(byte)
        previous = byte
    if at == len(pattern):
        raise ValueError("the class does not end")
    if ignore_case:
        # Git converts the compared byte to lower case, but not the bytes of the class.
        members.difference_update(_UPPER)
        members.update(bytes(members).upper())
    # A class never matches a slash.
    members = members | {_SLASH} if negated else members - {_SLASH}
    if not members:
        raise ValueError("the class is empty")
    listed = b"".join(b"\\x%02x" % byte for byte in sorted(members))
    return b"[%s%s]" % (b"^" if negated else b"", listed), at + 1


def _joined(parts: Iterable[bytes], stars: tuple[bytes, ...]) -> bytes:
    """Return the expression for *parts*, in which only the last of the *stars* backtracks.

    The parts between a star and the next star that is as wide are fixed. So the first place where they
    match is as good as any later one. If every star backtracked, the time for a pattern with n stars
    would grow with the n-th power of the length of a name.
    """
    head: list[bytes] = []
    spans: list[tuple[bytes, list[bytes]]] = []
    current = head
    for part in parts:
        if part in stars:
            current = []
            spans.append((part, current))
        else:
            current.append(part)
    inner = b"".join if stars == (_ONE_NAME,) else lambda span: _joined(span, (_ONE_NAME,))
    last = len(spans) - 1
    return inner(head) + b"".join(
        star + inner(span) if number == last else b"(?>%s?%s)" % (star, inner(span))
        for number, (star, span) in enumerate(spans)
    )
