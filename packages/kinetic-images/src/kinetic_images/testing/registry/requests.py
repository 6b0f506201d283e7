"""The log of a registry's requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass
class Logged:
    """One request. It is added when it arrives; status and bytes follow."""

    method: str
    path: str
    """Without the query."""
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str]
    """Names in lower case. `authorization` has the scheme only."""
    status: int = 0
    """0: there is no response, or not yet."""
    bytes_in: int = 0
    bytes_out: int = 0
    user: str = ""
    """Who made it; empty: nobody, or it was not accepted."""


class Requests:
    """All requests of a server, in the order in which they arrived. Can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: list[Logged] = []

    def __iter__(self) -> Iterator[Logged]:
        with self._lock:
            return iter(list(self._logged))

    def __len__(self) -> int:
        with self._lock:
            return len(self._logged)

    def add(self, logged: Logged) -> None:
        """Add a request."""
        with self._lock:
            self._logged.append(logged)

    def clear(self) -> None:
        """Forget all requests."""
        with self._lock:
            self._logged.clear()

    def matching(
        self, *, method: str = "", path: str = "", status: int | None = None
    ) -> list[Logged]:
        """Return the requests that match (`fnmatch`; "" and None match all)."""
        return [
            each
            for each in self
            if (not method or each.method == method)
            and (not path or fnmatchcase(each.path, path))
            and status in (None, each.status)
        ]

    def count(self, *, method: str = "", path: str = "", status: int | None = None) -> int:
        """Return how many requests match."""
        return len(self.matching(method=method, path=path, status=status))

    @property
    def lines(self) -> list[str]:
        """The requests as text, for a comparison: `PUT /v2/kn/manifests/1 201`."""
        return [f"{each.method} {each.path} {each.status}" for each in self]
