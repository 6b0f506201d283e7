"""What one host reports of one attempt, and how that and every other record is written.

A module of its own beside `records`: the process of the user's code needs these alone, and making
a dataclass takes as long as importing a small module.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kinetic_payload.layout import WIRE_VERSION

if TYPE_CHECKING:
    from kinetic_payload.records.job import Record

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


def encode(record: Record) -> bytes:
    """Return *record* as JSON that a person can read: sorted keys, one line."""
    return json.dumps(_as_dict(record), sort_keys=True, ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def fields_of(data: bytes) -> dict[str, Any]:
    """Return the fields of a record, unchecked, for who has nothing but `json`; none if it is none."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _as_dict(record: Record) -> dict[str, Any]:
    return {key: value for key, value in asdict(record).items() if value is not None}
