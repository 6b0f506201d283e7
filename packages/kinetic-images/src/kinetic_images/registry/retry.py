"""Retry policy of requests to registries."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.threads import check_wanted, pause

_T = TypeVar("_T")
_LONGEST_RETRY_AFTER: Final = 30.0


class TransientError(Exception):
    """A try failed in a way in which another try may succeed."""

    def __init__(self, reason: str, *, retry_after: float = 0.0, limited: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after = retry_after
        """Seconds after which the registry asks for the next try."""
        self.limited = limited
        """Whether the registry limits the number of requests (429)."""


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
    """The limit of all tries together; for an upload, without further progress."""
    first: float = 0.25
    """The limit of the first pause. Pauses are random below a limit that doubles."""
    longest: float = 5.0
    """The limit of all pauses, unless the registry asks for a longer one (up to 30 s)."""
    least_rate: float = 10e3
    """Bytes per second by which waiting for a blob may take longer than *limit*."""
    clock: Callable[[], float] = monotonic
    pause: Callable[[float], object] = pause

    def run(self, act: Callable[[float], _T], *, progress: Callable[[], int] = lambda: 0) -> _T:
        """Return `act(seconds)`, where *seconds* are left; call it again after a `TransientError`.

        If `progress()` has grown, the time starts again.

        Raises:
            GaveUpError: The time is up, or the registry asks for a pause that is longer than what is left.
        """
        since, reached, longest = self.clock(), progress(), self.first
        while True:
            check_wanted()
            left = since + self.limit - self.clock()
            try:
                return act(max(left, 1.0))
            except TransientError as error:
                if progress() > reached:
                    since, reached, longest = self.clock(), progress(), self.first
                wait = random.uniform(longest / 2, longest)  # noqa: S311 - no secret
                wait = max(wait, min(error.retry_after, _LONGEST_RETRY_AFTER))
                if self.clock() + wait >= since + self.limit:
                    raise GaveUpError(self.limit, error) from error
            self.pause(wait)
            longest = min(2 * longest, self.longest)
