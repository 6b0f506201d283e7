"""Faults: what goes wrong on purpose, for which requests, how often."""

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
    """Something that goes wrong for requests that match all patterns (`fnmatch`; "" is all).

    What goes wrong is `status` (an answer of the service instead of the work), `page` (an answer of
    something else, such as a captive portal, with that status), `reset` (the connection breaks) or none; `delay` and `drip` come on top.
    """

    method: str = ""
    operation: str = ""
    """Such as `objects.insert*`, `objects.get.media`, `objects.list`; the log shows them all."""
    bucket: str = ""
    name: str = ""
    """Of the object, or of a copy's target."""
    after: int = 0
    """So many matching requests pass before the first is hit."""
    times: int | None = None
    """So many requests are hit; None: all."""
    seconds: float | None = None
    """How long after its first hit it lasts; None: for ever."""
    probability: float = 1.0
    seed: int = 0

    status: int | None = None
    retry_after: float | None = None
    page: str | None = None
    """The body of an answer that is not the service's."""
    location: str = ""
    """Where that answer redirects to."""
    reset: Break = ""
    """`before` anything is read; in the middle of the `request`'s body; in the middle of the
    `response`'s; `after` the work was done, so that its answer is lost."""
    polite: bool = False
    """Whether a connection is closed rather than reset: a body that just ends too early."""
    at: int | None = None
    """After how many bytes of a body it breaks; None: after half of it."""
    held: bool = False
    """Whether the request waits, before anything else, until `release` is called."""
    delay: float = 0.0
    """Seconds before the request is looked at."""
    drip: float | None = None
    """Bytes a second, of the request's body as of the response's."""

    hits: int = field(default=0, compare=False)
    """How many requests were hit so far."""

    def __post_init__(self) -> None:
        self._seen = 0
        self._first: float | None = None
        self._released = threading.Event()
        self._random = random.Random(self.seed)  # noqa: S311 - faults, not secrets

    def matches(self, method: str, operation: str, bucket: str, name: str) -> bool:
        """Tell whether a request is of those it is for."""
        pairs = (
            (method, self.method),
            (operation, self.operation),
            (bucket, self.bucket),
            (name, self.name),
        )
        return all(not pattern or fnmatchcase(found, pattern) for found, pattern in pairs)

    def strike(self, now: float) -> bool:
        """Decide whether a request that matches is hit, and count it."""
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
        """Let all that waits go on, and hold nothing any more."""
        self._released.set()

    @property
    def holds(self) -> bool:
        """Whether requests that it hit wait."""
        return self.held and not self._released.is_set()

    @property
    def ends_it(self) -> bool:
        """Whether the request fails, rather than being slow."""
        return self.status is not None or self.page is not None or self.reset != ""


@dataclass
class Plan:
    """What goes wrong for one request."""

    delay: float = 0.0
    drip: float | None = None
    holding: tuple[Fault, ...] = ()
    fault: Fault | None = None
    """The one that makes it fail."""

    def breaks(self, where: Break) -> bool:
        """Tell whether the connection breaks there."""
        return self.fault is not None and self.fault.reset == where


class Faults:
    """The faults of a server. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault | None = None, **what: Any) -> Fault:
        """Add a fault, given whole or by what `Fault` takes; `hits` of what is returned counts."""
        added = Fault(**what) if fault is None else fault
        with self._lock:
            self._faults.append(added)
        return added

    def outage(self, seconds: float, *, status: int | None = 503) -> Fault:
        """Fail everything for so long, from the next request on; without a status, by resets."""
        reset: Break = "" if status else "before"
        return self.add(seconds=seconds, status=status, reset=reset)

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        with self._lock:
            self._faults.clear()

    def plan(self, method: str, operation: str, bucket: str, name: str) -> Plan:
        """Decide what goes wrong for a request."""
        plan = Plan()
        if not self._faults:
            return plan
        now = time.monotonic()
        with self._lock:
            for fault in self._faults:
                if plan.fault is not None and fault.ends_it:
                    continue  # One is enough, the other's turn comes.
                if fault.matches(method, operation, bucket, name) and fault.strike(now):
                    plan.delay += fault.delay
                    plan.drip = fault.drip or plan.drip
                    plan.holding += (fault,) if fault.held else ()
                    plan.fault = fault if fault.ends_it else plan.fault
        return plan

    def described(self) -> list[dict[str, Any]]:
        """Return them as data, with their hits."""
        with self._lock:
            return [asdict(fault) for fault in self._faults]
