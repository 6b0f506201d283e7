"""`Resources`: what each host of a job gets of its machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What each host of a job gets; None leaves it to the backend."""

    cpu: float | None = None
    """Cores."""
    memory: int | None = None
    """Bytes."""
    shared_memory: int | None = None
    """Bytes of `/dev/shm`, which are part of `memory`."""
