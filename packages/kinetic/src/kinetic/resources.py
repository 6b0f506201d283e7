"""What a job may use: the cores and the memory of each host, and how many attempts for how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of each host of a job; None lets the backend choose."""

    cpu: float | None = None
    """Cores."""
    memory: int | None = None
    """Bytes."""
    shared_memory: int | None = None
    """Bytes of `/dev/shm`, which are part of `memory`."""


@dataclass(frozen=True, kw_only=True)
class AttemptLimits:
    """How many attempts a job may make, and how long each may take."""

    timeout: float | None = None
    """Seconds that the function may take in one attempt; None means no limit."""
    retries: int = 0
    """How many more attempts may be made after failures."""
    preemptions: int | None = None
    """How many more attempts may be made after disruptions; None means no limit."""
