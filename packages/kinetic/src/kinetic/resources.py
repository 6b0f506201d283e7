"""`Resources`: the cores and the memory of each host of a job."""

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
