"""The request log, with the status and bytes of each request."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

_LOGGED_HEADERS: Final = (
    "accept-encoding", "authorization", "content-length", "content-range", "content-type", "range",
    "user-agent", "x-goog-api-client", "x-goog-hash", "x-goog-user-project", "x-upload-content-length",
    "x-upload-content-type",
)  # fmt: skip


@dataclass
class Logged:
    """One request. It is added when it arrives; status and bytes follow."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    """Selected headers, names in lower case; without tokens."""
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


class Requests:
    """All requests except those of `/_kinetic/`."""

    def __init__(self) -> None:
        self._logged: list[Logged] = []

    def __iter__(self) -> Iterator[Logged]:
        return iter(list(self._logged))

    def __len__(self) -> int:
        return len(self._logged)

    def add(self, logged: Logged) -> None:
        """Add a request."""
        self._logged.append(logged)

    def clear(self) -> None:
        """Clear the log."""
        self._logged.clear()

    def matching(
        self, *, method: str = "", operation: str = "", name: str = "", status: int | None = None
    ) -> list[Logged]:
        """Return the requests that match the patterns (`fnmatch`)."""
        return [
            logged
            for logged in self
            if (not method or logged.method == method)
            and (not operation or fnmatchcase(logged.operation, operation))
            and (not name or fnmatchcase(logged.name, name))
            and status in (None, logged.status)
        ]

    def count(
        self, *, method: str = "", operation: str = "", name: str = "", status: int | None = None
    ) -> int:
        """Return how many requests match the patterns."""
        return len(self.matching(method=method, operation=operation, name=name, status=status))

    @property
    def bytes_in(self) -> int:
        """The bytes of all request bodies."""
        return sum(logged.bytes_in for logged in self)

    @property
    def bytes_out(self) -> int:
        """The bytes of all response bodies."""
        return sum(logged.bytes_out for logged in self)

    def described(self) -> list[dict[str, Any]]:
        """Return all requests as data."""
        return [asdict(logged) for logged in self]


def logged_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers for the log."""
    found = {key: headers[key] for key in _LOGGED_HEADERS if key in headers}
    if "authorization" in found:
        found["authorization"] = found["authorization"].partition(" ")[0]
    return found
