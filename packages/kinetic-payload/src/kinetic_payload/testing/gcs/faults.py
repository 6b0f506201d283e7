"""Faults: failures injected into requests."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

Break = Literal["", "before", "request", "response", "after"]


@dataclass
class Fault:
    """A failure of requests that match all patterns (`fnmatch`; "" matches all).

    The failure is a `status` (the service's error, without performing the call), a `page` (a response that is
    not the service's, such as a captive portal's, with that status), a `reset` (a broken connection) or none.
    `delay` and `drip` can be added.
    """

    method: str = ""
    operation: str = ""
    """Such as `objects.insert*`, `objects.get.media`, `objects.list`, as in the log."""
    bucket: str = ""
    name: str = ""
    """The name of the object, or of a copy's target."""
    after: int = 0
    """How many matching requests succeed before the first is hit."""
    times: int | None = None
    """How many requests are hit; None for all."""
    seconds: float | None = None
    """How long the fault lasts after its first hit; None: for ever."""
    probability: float = 1.0
    seed: int = 0

    status: int | None = None
    retry_after: float | None = None
    page: str | None = None
    """The body of a response that is not the service's."""
    location: str = ""
    """The address that the `page` redirects to."""
    reset: Break = ""
    """When the connection breaks: `before` anything is read; in the middle of the body of the `request` or the
    `response`; `after` the call was performed, so that its response is lost."""
    polite: bool = False
    """Whether the connection is closed instead of reset, so that a body ends too early."""
    at: int | None = None
    """After how many bytes of a body the connection breaks; None: after half of it."""
    held: bool = False
    """Whether the request first waits until `release` is called."""
    delay: float = 0.0
    """Seconds before the request is handled."""
    drip: float | None = None
    """Bytes per second, of both bodies."""

    hits: int = field(default=0, compare=False)
    """How many requests were hit."""

    def __post_init__(self) -> None:
        self._seen = 0
        self._first: float | None = None
        self._released = threading.Event()
        self._random = random.Random(self.seed)  # noqa: S311 - faults, not secrets

    def matches(self, method: str, operation: str, bucket: str, name: str) -> bool:
        """Return whether a request matches the patterns."""
        pairs = (
            (method, self.method),
            (operation, self.operation),
            (bucket, self.bucket),
            (name, self.name),
        )
        return all(not pattern or fnmatchcase(found, pattern) for found, pattern in pairs)

    def strike(self, now: float) -> bool:
        """Decide whether a matching request is hit; count it."""
        self._seen += 1
        if self._seen <= self.after or (self.times is not None and self.hits >= self.times):
            return False
        if (
            self._first is not None
            and self.seconds is not None
            and now - self._first >= self.seconds
        ):
            return False
        if self.probability < 1 and self._random.random() >= self.probability:
            return False
        self._first = now if self._first is None else self._first
        self.hits += 1
        return True

    def release(self) -> None:
        """Release all waiting requests, and hold no more."""
        self._released.set()

    @property
    def holds(self) -> bool:
        """Whether requests have to wait."""
        return self.held and not self._released.is_set()

    @property
    def fails(self) -> bool:
        """Whether the request fails instead of being slow."""
        return self.status is not None or self.page is not None or self.reset != ""


@dataclass
class Plan:
    """The failure of one request."""

    delay: float = 0.0
    drip: float | None = None
    holding: tuple[Fault, ...] = ()
    fault: Fault | None = None
    """The fault that makes the request fail."""

    def breaks(self, where: Break) -> bool:
        """Return whether the connection breaks there."""
        return self.fault is not None and self.fault.reset == where


class Faults:
    """The faults of a server. Can be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault | None = None, **what: Any) -> Fault:
        """Add *fault*, or a new fault with these arguments, and return it."""
        added = Fault(**what) if fault is None else fault
        with self._lock:
            self._faults.append(added)
        return added

    def outage(self, seconds: float, *, status: int | None = 503) -> Fault:
        """Fail all requests for *seconds* from the next one on, with *status*, or with resets if it is None."""
        reset: Break = "" if status else "before"
        return self.add(seconds=seconds, status=status, reset=reset)

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def plan(self, method: str, operation: str, bucket: str, name: str) -> Plan:
        """Decide the failure of a request."""
        plan = Plan()
        if not self._faults:
            return plan
        now = time.monotonic()
        with self._lock:
            for fault in self._faults:
                if plan.fault is not None and fault.fails:
                    continue  # One failure is enough; the other fault hits a later request.
                if fault.matches(method, operation, bucket, name) and fault.strike(now):
                    plan.delay += fault.delay
                    plan.drip = fault.drip or plan.drip
                    plan.holding += (fault,) if fault.held else ()
                    plan.fault = fault if fault.fails else plan.fault
        return plan

    def described(self) -> list[dict[str, Any]]:
        """Return all faults as data, with their hits."""
        with self._lock:
            return [asdict(fault) for fault in self._faults]
