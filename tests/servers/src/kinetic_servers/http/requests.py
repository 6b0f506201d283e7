"""The request log, with the status and bytes of each request."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass
class Logged:
    """One request. It is added when it arrives; status and bytes follow."""

    method: str
    path: str
    """Without the query."""
    query: dict[str, list[str]]
    headers: dict[str, str]
    """Names in lower case. `authorization` is the scheme, or empty."""
    operation: str
    bucket: str
    name: str
    connection: int
    """The id of its connection."""
    time: float = field(default_factory=time.time)
    status: int = 0
    """0: there is no response yet."""
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    """The duration."""
    user: str = ""
    """Who made it; empty: nobody, or it was not accepted."""


class Requests(list[Logged]):
    """All requests of a server, but for those of `/_kinetic/`. Can be used from any thread."""

    def matching(
        self,
        *,
        method: str = "",
        operation: str = "",
        name: str = "",
        path: str = "",
        status: int | None = None,
    ) -> list[Logged]:
        """Return the requests that match the patterns (`fnmatch`)."""
        return [
            logged
            for logged in list(self)
            if (not method or logged.method == method)
            and (not operation or fnmatchcase(logged.operation, operation))
            and (not name or fnmatchcase(logged.name, name))
            and (not path or fnmatchcase(logged.path, path))
            and status in (None, logged.status)
        ]

    def count(self, **patterns: Any) -> int:  # type: ignore[override]
        """Return how many requests match the patterns."""
        return len(self.matching(**patterns))

    @property
    def bytes_in(self) -> int:
        return sum(logged.bytes_in for logged in self)

    @property
    def bytes_out(self) -> int:
        return sum(logged.bytes_out for logged in self)

    @property
    def lines(self) -> list[str]:
        """The requests as text, for a comparison: `PUT /v2/kn/manifests/1 201`."""
        return [f"{each.method} {each.path} {each.status}" for each in self]

    def described(self) -> list[dict[str, Any]]:
        return [asdict(logged) for logged in self]
