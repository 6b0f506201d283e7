"""`HostOutcome`: the record of how one host ended one attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kinetic_payload.layout import WIRE_VERSION

Phase = Literal[
    "claim",
    "fetch",
    "verify",
    "extract",
    "environment",
    "unpickle",
    "data",
    "call",
    "report",
]
"""The named steps of the runner, in order."""

Reason = Literal[
    "returned",  # the function returned, or ended with SystemExit(0)
    "exception",  # the function raised, or a phase before it did
    "exited",  # SystemExit with another code, or os._exit
    "killed",  # death by a signal that Kinetic did not send
    "timeout",  # the attempt's time was up
    "terminated",  # SIGTERM from outside: preemption, cancel, a failed sibling host
    "unreported",  # the host ended and left no word; written by whoever saw that
]


@dataclass(frozen=True)
class Pickled:
    """A pickle: inside the record (`inline`, base64) or as the object `name`."""

    size: int
    digest: str
    inline: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class ErrorInfo:
    """An exception as text, readable without unpickling anything, and as an object if it pickles."""

    type: str
    """Qualified name, `module.Class`; a builtin one goes without its module."""
    message: str
    traceback: str
    notes: tuple[str, ...] = ()
    pickled: Pickled | None = None
    unpicklable: str | None = None
    """Why there is no `pickled`."""


@dataclass(frozen=True, kw_only=True)
class HostOutcome:
    """What one host of one attempt reported: `{job}/attempts/{attempt}/host-{n}.json`."""

    job_id: str
    attempt: int
    host: int
    succeeded: bool
    reason: Reason
    phase: Phase
    """The phase that ended it: `report` after a success."""
    exit_code: int
    message: str = ""
    """One sentence for people: what happened."""
    signal: int | None = None
    error: ErrorInfo | None = None
    value: Pickled | None = None
    """Of the leader's success; None where the value is None on other hosts."""
    value_repr: str | None = None
    """Bounded `repr` of a value that would not pickle."""
    started_at: float = 0.0
    """Seconds since the epoch, like `finished_at`."""
    finished_at: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds each phase took."""
    python: str = ""
    hostname: str = ""
    warnings: tuple[str, ...] = ()
    lost_peer: bool | None = None
    """Whether it may have failed only because another host had ended; None: no."""
    stopped_at: float | None = None
    """When it was told to stop by SIGTERM, while its function ran."""
    version: int = WIRE_VERSION
