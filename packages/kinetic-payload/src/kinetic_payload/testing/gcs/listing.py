"""Lists of objects, page by page, as the API orders and groups them."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from kinetic_payload.testing.gcs.answers import invalid


@dataclass(frozen=True)
class Listing:
    """What is to be listed."""

    prefix: str = ""
    delimiter: str = ""
    trailing: bool = False
    """Whether an object `folder/` is listed besides the prefix `folder/`."""
    start: str = ""
    end: str = ""
    match: re.Pattern[str] | None = None
    """What the whole of a name has to match."""
    limit: int = 1000
    token: str = ""


@dataclass
class Page:
    """One page of names: objects and prefixes count alike."""

    names: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str = ""


def page_of(names: Sequence[str], wanted: Listing) -> Page:
    """Return a page of the sorted *names*."""
    last = _seen(wanted.token)
    low = max(wanted.start, wanted.prefix)
    place = bisect_left(names, low)
    if last:
        place = max(place, _beyond(names, last, wanted))
    page = Page()
    while place < len(names):
        name = names[place]
        if not name.startswith(wanted.prefix) or (wanted.end and name >= wanted.end):
            break
        if wanted.match is not None and not wanted.match.fullmatch(name):
            place += 1
            continue
        if len(page.names) + len(page.prefixes) >= wanted.limit:
            page.token = _token(last)
            break
        group = _group(name, wanted)
        if group is None:
            page.names.append(name)
            last = name
            place += 1
            continue
        page.prefixes.append(group)
        last = group
        if wanted.trailing and name == group:
            page.names.append(name)
        place = _after_group(names, group)
    return page


def _group(name: str, wanted: Listing) -> str | None:
    if not wanted.delimiter:
        return None
    at = name.find(wanted.delimiter, len(wanted.prefix))
    return None if at < 0 else name[: at + len(wanted.delimiter)]


def _beyond(names: Sequence[str], last: str, wanted: Listing) -> int:
    """Return where the names go on after what was last listed: a name, or a whole prefix."""
    if wanted.delimiter and _group(last, wanted) == last:
        return _after_group(names, last)
    return bisect_right(names, last)


def _after_group(names: Sequence[str], group: str) -> int:
    # No name in the group is above this, however it goes on.
    return bisect_right(names, group + chr(0x10FFFF) * (1025 - min(len(group), 1024)))


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(b"\n" + last.encode()).decode()


def _seen(token: str) -> str:
    if not token:
        return ""
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
        if data[:1] != b"\n":
            raise ValueError
        return data[1:].decode()
    except ValueError:
        raise invalid(f"Invalid page token: {token}") from None
