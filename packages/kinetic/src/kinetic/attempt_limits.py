"""`AttemptLimits`: how many attempts a job may make, and how long each may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AttemptLimits:
    """How many attempts a job may make, and how long each may take."""

    timeout: float | None = None
    """Seconds that the function may take in one attempt; None: any number."""
    retries: int = 0
    """Attempts that may follow on failures."""
    preemptions: int | None = None
    """Attempts that may follow on disruptions; None: any number."""
