"""Faults: failures of a registry, injected into requests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass
class Fault:
    """A failure of requests that match the patterns (`fnmatch`; "" matches all)."""

    method: str = ""
    path: str = ""
    """Without the query, such as `/v2/*/blobs/uploads/*`."""
    after: int = 0
    """How many matching requests succeed before the first is hit."""
    times: int | None = 1
    """How many requests are hit; None for all."""

    status: int | None = None
    """Respond with this status instead of performing the call."""
    code: str = ""
    """The registry's code in that response, such as `TOOMANYREQUESTS`."""
    message: str = "injected"
    retry_after: str | None = None
    page: bytes | None = None
    """A body that replaces that of the response; with `status`, the response of a proxy."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Headers that are added or replaced; None removes one."""
    drop_request_after: int | None = None
    """Break the connection after so many bytes of the request's body."""
    drop_response_after: int | None = None
    """Break the connection after so many bytes of the response's body; the call was performed."""
    lose_response: bool = False
    """Perform the call and break the connection instead of responding."""
    endless: bool = False
    """Never end the response's body."""
    stall: float = 0.0
    """Seconds without a byte before the request is handled."""
    stall_request_after: int | None = None
    """Stop reading after so many bytes of the request's body, until the server is stopped or `release`d."""

    hits: int = field(default=0, compare=False)
    """How many requests were hit."""

    def __post_init__(self) -> None:
        self._seen = 0
        self.released = threading.Event()
        """Set by `release`."""

    def release(self) -> None:
        """End all stalls."""
        self.released.set()

    def strikes(self, method: str, path: str) -> bool:
        """Decide whether a request is hit; count it."""
        if (self.method and method != self.method) or (
            self.path and not fnmatchcase(path, self.path)
        ):
            return False
        self._seen += 1
        if self._seen <= self.after or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        return True


class Faults:
    """The faults of a server. Can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault | None = None, **what: Any) -> Fault:
        """Add *fault*, or a new one with these arguments, and return it."""
        added = fault or Fault(**what)
        with self._lock:
            self._faults.append(added)
        return added

    def clear(self) -> None:
        """Remove all faults, and end their stalls."""
        with self._lock:
            for fault in self._faults:
                fault.release()
            self._faults.clear()

    def strike(self, method: str, path: str) -> Fault:
        """Return the fault that hits a request; one without any effect if none does."""
        with self._lock:
            hitting = (each for each in self._faults if each.strikes(method, path))
            return next(hitting, Fault())
