"""Lists of objects, page by page, as the API selects, orders and groups them."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kinetic_servers.gcs.errors import invalid

_TOKEN: Final = re.compile(r"\{[^{}]*\}|.", re.DOTALL)
"""One token of a glob."""


@dataclass(frozen=True)
class Listing:
    """The parameters of a list."""

    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    end: str = ""
    match: re.Pattern[str] | None = None
    """The pattern of whole names."""
    limit: int = 1000
    token: str = ""


@dataclass
class Page:
    """A page of names; its limit counts objects and prefixes."""

    names: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str = ""


def page_of(names: Sequence[str], wanted: Listing) -> Page:
    """Return a page of the sorted *names*."""
    last = _decode_token(wanted.token)
    low = max(wanted.start, wanted.prefix)
    place = bisect_left(names, low)
    if last:
        place = max(place, _index_after(names, last, wanted))
    page = Page()
    while place < len(names):
        name = names[place]
        if not name.startswith(wanted.prefix) or (wanted.end and name >= wanted.end):
            break
        if wanted.match is not None and not wanted.match.fullmatch(name):
            place += 1
            continue
        if len(page.names) + len(page.prefixes) >= wanted.limit:
            page.token = _encode_token(last)
            break
        group = _group(name, wanted)
        if group is None:
            page.names.append(name)
            last = name
            place += 1
            continue
        page.prefixes.append(group)
        last = group
        place = _after_group(names, group)
    return page


def _group(name: str, wanted: Listing) -> str | None:
    if not wanted.delimiter:
        return None
    at = name.find(wanted.delimiter, len(wanted.prefix))
    return None if at < 0 else name[: at + len(wanted.delimiter)]


def _index_after(names: Sequence[str], last: str, wanted: Listing) -> int:
    """Return the index after the last listed name or prefix."""
    if wanted.delimiter and _group(last, wanted) == last:
        return _after_group(names, last)
    return bisect_right(names, last)


def _after_group(names: Sequence[str], group: str) -> int:
    # The argument sorts after all names in the group.
    return bisect_right(names, group + chr(0x10FFFF) * (1025 - min(len(group), 1024)))


def _encode_token(last: str) -> str:
    return base64.urlsafe_b64encode(b"\n" + last.encode()).decode()


def _decode_token(token: str) -> str:
    if not token:
        return ""
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
        if data[:1] != b"\n":
            raise ValueError
        return data[1:].decode()
    except ValueError:
        raise invalid(f"Invalid page token: {token}") from None


def pattern_of(glob: str) -> re.Pattern[str]:
    """Return a pattern for the whole names that match *glob*, the parameter `matchGlob`.

    `*` and `?` do not match `/`; `{a,b}` matches if one of the globs in it does. Google also supports `**` and
    `[a-c]`; this server does not.
    https://docs.cloud.google.com/storage/docs/json_api/v1/objects/list#list-objects-and-prefixes-using-glob
    """
    return re.compile(_regex_of(glob), re.DOTALL)


def _regex_of(glob: str) -> str:
    return "".join(map(_regex_of_token, _TOKEN.findall(glob)))


def _regex_of_token(part: str) -> str:
    if part == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part[0] == "{" and len(part) > 1:
        return f"(?:{'|'.join(map(_regex_of, part[1:-1].split(',')))})"
    if part in "[]{}\\":
        raise invalid(f"This server does not support {part!r} in matchGlob.")
    return re.escape(part)
