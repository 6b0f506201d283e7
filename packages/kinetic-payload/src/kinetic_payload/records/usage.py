"""`Usage` and `PendingReasons`: observations of a job, stored beside its log and, like the log, not signed."""

from __future__ import annotations

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION


@frozen(kw_only=True)
class Chip:
    """A GPU or a TPU chip at one moment."""

    busy: float
    """The share of the time in which it computed, from 0 to 1."""
    memory: int
    """Bytes in use."""
    memory_total: int


@frozen(kw_only=True)
class Sample:
    """The host at one moment."""

    at: float
    """Unix time."""
    cpu: float
    """Processors in use, on average since the sample before."""
    memory: int
    """Bytes of all processes of the function; what several of them share counts for each."""
    chips: tuple[Chip, ...] = ()


@frozen(kw_only=True)
class Usage:
    """The samples of one host: `logs/{job}/{attempt}/host-{n}.usage`, written again and again."""

    cpus: int
    """Processors of the machine that the job may use."""
    memory_limit: int | None = None
    samples: tuple[Sample, ...] = ()
    """In order; the longer the attempt, the further apart."""
    version: int = WIRE_VERSION


@frozen()
class PendingReason:
    """One reason for which a job was pending."""

    text: str
    first: float
    """When somebody saw it first; Unix time."""
    last: float


@frozen()
class PendingReasons:
    """The reasons that clients saw: `logs/{job}/pending.json`; the last writer wins."""

    reasons: tuple[PendingReason, ...] = ()
    version: int = WIRE_VERSION
