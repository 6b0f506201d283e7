"""A retry policy for tests: pauses pass at once, while a slow machine gets the whole limit."""

from __future__ import annotations

from kinetic_payload.http.retry import RetryPolicy


def eager(limit: float = 60.0) -> RetryPolicy:
    now = 0.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    return RetryPolicy(limit=limit, clock=lambda: now, pause=pause)
