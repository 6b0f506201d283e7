"""`Lease`: the record that shows that what keeps a job is alive."""

from __future__ import annotations

from dataclasses import dataclass

from kinetic_payload.layout import WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A sign of life of what keeps a job: `{job}/lease.json`, written again and again."""

    job_id: str
    holder: str
    """Whose it is, for people: the machine, and the folder of its jobs."""
    seconds: float
    """How long it holds, counted from when the store says it was written."""
    version: int = WIRE_VERSION
