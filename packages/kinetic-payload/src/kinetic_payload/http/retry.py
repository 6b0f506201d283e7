"""Retry policy of HTTP requests: which statuses are transient, how long to retry, which pauses to make."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.backoff import Backoff
from kinetic_payload.threads import check_wanted, pause

_T = TypeVar("_T")
TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed a little later."""
_LONGEST_RETRY_AFTER: Final = 30.0


class TransientError(Exception):
    """A try failed in a way in which another try may succeed."""

    def __init__(self, reason: str, *, retry_after: float = 0.0, limited: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        """Seconds after which the server asks for the next try."""
        self.limited = limited
        """Whether the server limits the number of requests (429)."""


class GaveUpError(Exception):
    """No try succeeded within the time limit."""

    def __init__(self, seconds: float, last: TransientError) -> None:
        super().__init__(last.reason)
        self.seconds = seconds
        self.last = last


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long a request is retried, and the pauses between its tries. In seconds."""

    limit: float = 60.0
    """The limit of all tries together; of a transfer, without further progress."""
    first: float = 0.25
    """The limit of the first pause. Pauses are random below a limit that doubles, and above its half."""
    longest: float = 5.0
    """The limit of all pauses, unless the server asks for a longer one."""
    least_rate: float = 10e3
    """Bytes per second: a body may take *limit*, and the time for its bytes at this rate."""
    clock: Callable[[], float] = monotonic
    pause: Callable[[float], object] = pause

    def run(self, act: Callable[[float], _T], *, progress: Callable[[], int] = lambda: 0) -> _T:
        """Return `act(seconds)`, where *seconds* are left; call it again after a `TransientError`.

        If `progress()` has grown, the time starts again. The last try is at the end of the time.

        Raises:
            GaveUpError: The time is up.
        """
        since, reached, backoff = self.clock(), progress(), Backoff(self.first, self.longest)
        while True:
            check_wanted()
            left = since + self.limit - self.clock()
            try:
                return act(max(left, 1.0))
            except TransientError as error:
                if progress() > reached:
                    since, reached = self.clock(), progress()
                    backoff.reset()
                left = since + self.limit - self.clock()
                if left <= 0:
                    raise GaveUpError(self.limit, error) from error
                wait = max(backoff.next(), error.retry_after)
            self.pause(min(wait, left))

    def too_slow(self, received: int, seconds: float) -> bool:
        """Return whether *received* bytes are too few for a body after *seconds*."""
        return seconds > self.limit + received / self.least_rate


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float:
    """Return the seconds, up to 30, after which a response asks for the next request; 0 if it does not."""
    value = headers.get("Retry-After") or ""
    try:
        seconds = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
            seconds = (until - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER) if math.isfinite(seconds) else 0.0
