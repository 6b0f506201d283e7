"""`AttemptLimits`: how many attempts a job may make, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AttemptLimits:
    """How many attempts a job may make, and how long each may take."""

    timeout: float | None = None
    """Seconds that the function may take in one attempt; None means no limit."""
    retries: int = 0
    """How many more attempts may be made after failures."""
    preemptions: int | None = None
    """How many more attempts may be made after disruptions; None means no limit."""
