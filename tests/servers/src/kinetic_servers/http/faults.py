"""Faults: failures injected into requests."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from kinetic_servers.http.messages import Call

Break = Literal["", "before", "request", "response", "after"]


@dataclass
class Fault:
    """A failure of requests that match all patterns (`fnmatch`; "" matches all).

    The failure is a `status` (the service's error, without performing the call), a `page` (a response that is
    not the service's, such as a captive portal's, with that status), a `reset` (a broken connection),
    a body that is `endless`, or none. The other effects can be added.
    """

    method: str = ""
    path: str = ""
    """Without the query, such as `/v2/*/blobs/uploads/*`."""
    operation: str = ""
    """Such as `objects.insert*`, `objects.get.media`, `objects.list`, as in the log; of buckets only."""
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
    code: str = ""
    """The code in that response, such as `TOOMANYREQUESTS`; empty: one that fits. Not of buckets."""
    performed: bool = False
    """Whether the call is performed before that response is sent."""
    retry_after: float | str | None = None
    page: str | bytes | None = None
    """The body of a response that is not the service's."""
    location: str = ""
    """The address that the `page` redirects to."""
    headers: Mapping[str, str | None] = field(default_factory=dict)
    """Headers that are added or replaced; None removes one."""
    reset: Break = ""
    """When the connection breaks: `before` anything is read; in the middle of the body of the `request` or the
    `response`; `after` the call was performed, so that its response is lost."""
    polite: bool = False
    """Whether the connection is closed instead of reset, so that a body ends too early."""
    at: int | None = None
    """After how many bytes of a body the connection breaks, or the request is held; None: after half of it."""
    endless: bool = False
    """Whether the response's body never ends."""
    held: bool = False
    """Whether the request waits until `release` is called: at first, or `at` a byte of its body if nothing breaks."""
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
        self._random = random.Random(self.seed)

    def matches(self, method: str, operation: str, bucket: str, name: str) -> bool:
        """Return whether a request matches the patterns, apart from its path."""
        patterns = (self.method, self.operation, self.bucket, self.name)
        pairs = zip((method, operation, bucket, name), patterns, strict=True)
        return all(not pattern or fnmatchcase(text, pattern) for text, pattern in pairs)

    def strike(self, now: float) -> bool:
        """Decide whether a matching request is hit; count it."""
        self._seen += 1
        if self._seen <= self.after or (self.times is not None and self.hits >= self.times):
            return False
        lasts = self._first is None or self.seconds is None or now - self._first < self.seconds
        if not lasts:
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
    def holds_body(self) -> bool:
        """Whether requests wait in the middle of their bodies."""
        return self.held and self.at is not None and not self.reset

    @property
    def fails(self) -> bool:
        """Whether the request fails instead of being slow."""
        return bool(self.status is not None or self.page is not None or self.reset or self.endless)


@dataclass
class Plan:
    """What happens to one request."""

    delay: float = 0.0
    drip: float | None = None
    holding: tuple[Fault, ...] = ()
    headers: dict[str, str | None] = field(default_factory=dict)
    fault: Fault = field(default_factory=Fault)
    """The fault that makes the request fail, or one without effect."""


class Faults:
    """The faults of a server. Can be used from any thread."""

    def __init__(self, *, times: int | None = None) -> None:
        self._times = times
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault | None = None, **what: Any) -> Fault:
        """Add *fault*, or a new fault with these arguments, and return it."""
        added = Fault(**{"times": self._times, **what}) if fault is None else fault
        with self._lock:
            self._faults.append(added)
        return added

    def outage(self, seconds: float, *, status: int | None = 503) -> Fault:
        """Fail all requests for *seconds* from the next one on, with *status*, or with resets if it is None."""
        return self.add(seconds=seconds, status=status, reset="" if status else "before")

    def clear(self) -> None:
        """Remove all faults. Requests that are held stay so."""
        with self._lock:
            self._faults.clear()

    def plan(self, call: Call) -> Plan:
        """Decide what happens to a request."""
        plan = Plan()
        if not self._faults:
            return plan
        place = (call.method, call.operation, call.bucket, call.to_name or call.name)
        now = time.monotonic()
        with self._lock:
            for fault in self._faults:
                if plan.fault.fails and fault.fails:
                    continue  # One failure is enough; the other fault hits a later request.
                if fault.path and not fnmatchcase(call.path, fault.path):
                    continue
                if fault.matches(*place) and fault.strike(now):
                    plan.delay += fault.delay
                    plan.drip = fault.drip or plan.drip
                    plan.headers |= fault.headers
                    plan.holding += (fault,) if fault.held else ()
                    plan.fault = fault if fault.fails else plan.fault
        return plan
