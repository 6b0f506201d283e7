"""What is persisted about a job, as standard-library dataclasses.

The worker writes and reads them with `json`; the client decodes them strictly with `decoding`.
Unknown keys are ignored when read, so that a newer writer does not break an older reader of the
same `version`; a greater `version` is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

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
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Who runs an attempt on a host: `{job}/attempts/{attempt}/host-{n}.claim`."""

    job_id: str
    attempt: int
    host: int
    hostname: str
    pid: int
    claimed_at: float
    version: int = WIRE_VERSION


FinalStatus = Literal["succeeded", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the job ended, written once: `{job}/outcome.json`."""

    job_id: str
    status: FinalStatus
    attempt: int | None = None
    """The attempt that decided, None where none ran."""
    host: int | None = None
    """The host whose outcome counts: the leader, or the lowest that failed."""
    digest: str | None = None
    """SHA-256 of that host's outcome object."""
    other_failed_hosts: tuple[int, ...] = ()
    message: str = ""
    written_by: Literal["runner", "supervisor", "client"] = "runner"
    written_at: float = 0.0
    signature: str | None = None
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A submitted job: `{job}/handle.json`. The first 17 fields are those of `JobHandle`."""

    job_id: str
    backend: str
    project: str
    cluster_name: str
    zone: str
    namespace: str
    bucket_name: str
    k8s_name: str
    image_uri: str
    accelerator: str
    func_name: str
    display_name: str
    created_at: str
    group_id: str | None = None
    group_kind: str | None = None
    group_index: int | None = None
    debug: bool = False
    payload_digest: str = ""
    context_digest: str | None = None
    hosts: int = 1
    retries: int = 0
    timeout: float | None = None
    output_dir: str | None = None
    captured_env: tuple[str, ...] = ()
    """Names only; values are never persisted."""
    labels: dict[str, str] = field(default_factory=dict)
    client: str = ""
    """Version of `kinetic` and of Python that submitted."""
    signature: str | None = None
    version: int = WIRE_VERSION


@dataclass(frozen=True, kw_only=True)
class GroupManifest:
    """A batch, written once: the ids of its children are derived from it."""

    group_id: str
    name: str | None
    tags: dict[str, str]
    created_at: str
    total_expected: int
    accelerator: str
    func_name: str
    signature: str | None = None
    version: int = WIRE_VERSION


Record = HostOutcome | Claim | Outcome | JobRecord | GroupManifest


def encode(record: Record) -> bytes:
    """Return *record* as JSON that a person can read: sorted keys, one line."""
    return json.dumps(_as_dict(record), sort_keys=True, ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def _as_dict(record: Record) -> dict[str, Any]:
    return {key: value for key, value in asdict(record).items() if value is not None}
