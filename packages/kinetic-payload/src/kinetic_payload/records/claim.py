"""`Claim` and `Lease`: the records of the process that runs an attempt, and of one that shows that it is alive."""

from __future__ import annotations

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION


@frozen(kw_only=True)
class Claim:
    """The process that runs an attempt on a host: `{job}/attempts/{attempt}/host-{n}.claim`."""

    job_id: str
    attempt: int
    host: int
    hostname: str
    """On a cluster, the name of the pod."""
    pid: int
    claimed_at: float
    restarts: int | None = None
    """How many times all hosts had been restarted, if the job has several and the system counts that."""
    signature: str | None = None
    """None if jobs are not signed, and in claims from before this field."""
    version: int = WIRE_VERSION


@frozen(kw_only=True)
class Lease:
    """A heartbeat of the process that keeps a job: `{job}/lease.json`, written periodically."""

    job_id: str
    holder: str
    """A description of the holder: the machine, and the folder of its jobs."""
    seconds: float
    """How long it is valid, from the time at which the store wrote it."""
    version: int = WIRE_VERSION
