"""`Lease`: the record by which the process that keeps a job shows that it is alive."""

from __future__ import annotations

from dataclasses import dataclass

from kinetic_payload.layout import WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A heartbeat of the process that keeps a job: `{job}/lease.json`, written periodically."""

    job_id: str
    holder: str
    """A description of the holder: the machine, and the folder of its jobs."""
    seconds: float
    """How long it is valid, from the time at which the store wrote it."""
    version: int = WIRE_VERSION
