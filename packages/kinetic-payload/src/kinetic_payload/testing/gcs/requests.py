"""The request log: what clients asked, how it ended, how many bytes moved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

_NOTED: Final = (
    "accept-encoding", "authorization", "content-length", "content-range", "content-type", "range",
    "user-agent", "x-goog-api-client", "x-goog-hash", "x-goog-user-project", "x-upload-content-length",
    "x-upload-content-type",
)  # fmt: skip


@dataclass
class Logged:
    """One request. It is listed when it arrives; status and bytes follow."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    """The ones that tell something, in lower case; a token is not told."""
    operation: str
    bucket: str
    name: str
    connection: int
    """Which connection it came over."""
    time: float = field(default_factory=time.time)
    status: int = 0
    """0: no answer (yet)."""
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    """How long it took."""


class Requests:
    """All requests so far. Those of `/_kinetic/` are not among them."""

    def __init__(self) -> None:
        self._logged: list[Logged] = []

    def __iter__(self) -> Iterator[Logged]:
        return iter(list(self._logged))

    def __len__(self) -> int:
        return len(self._logged)

    def add(self, logged: Logged) -> None:
        """Note one more."""
        self._logged.append(logged)

    def clear(self) -> None:
        """Forget them."""
        self._logged.clear()

    def matching(
        self, *, method: str = "", operation: str = "", name: str = "", status: int | None = None
    ) -> list[Logged]:
        """Return those that match the patterns (`fnmatch`)."""
        return [
            one
            for one in self
            if (not method or one.method == method)
            and (not operation or fnmatchcase(one.operation, operation))
            and (not name or fnmatchcase(one.name, name))
            and status in (None, one.status)
        ]

    def count(
        self, *, method: str = "", operation: str = "", name: str = "", status: int | None = None
    ) -> int:
        """Return how many match."""
        return len(self.matching(method=method, operation=operation, name=name, status=status))

    @property
    def bytes_in(self) -> int:
        """The bytes of all bodies that came."""
        return sum(one.bytes_in for one in self)

    @property
    def bytes_out(self) -> int:
        """The bytes of all bodies that were sent."""
        return sum(one.bytes_out for one in self)

    def described(self) -> list[dict[str, Any]]:
        """Return them as data."""
        return [asdict(one) for one in self]


def noted(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are worth a place in the log."""
    found = {key: headers[key] for key in _NOTED if key in headers}
    if "authorization" in found:
        found["authorization"] = found["authorization"].partition(" ")[0]
    return found
