"""`HostOutcome`: the record of how one host ended one attempt."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from kinetic_payload.frozen import frozen
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
    "killed",  # ended by a signal that Kinetic did not send
    "timeout",  # the attempt reached its time limit
    "terminated",  # SIGTERM from outside: preemption, cancel, another host that failed
    "unreported",  # the host ended without storing an outcome; another process stored this one
]


@frozen()
class Pickled:
    """A pickle: inside the record (`inline`, base64) or as the object `name`."""

    size: int
    digest: str
    inline: str | None = None
    name: str | None = None


@frozen()
class ErrorInfo:
    """An exception: as text, which is read without unpickling, and as an object if it can be pickled."""

    type: str
    """Qualified name, `module.Class`; without the module for a builtin one."""
    message: str
    traceback: str
    notes: tuple[str, ...] = ()
    pickled: Pickled | None = None
    unpicklable: str | None = None
    """Why there is no `pickled`."""


@frozen(kw_only=True)
class HostOutcome:
    """How one host ended one attempt: `{job}/attempts/{attempt}/host-{n}.json`."""

    job_id: str
    attempt: int
    host: int
    succeeded: bool
    reason: Reason
    phase: Phase
    """The phase in which it ended: `report` after a success."""
    exit_code: int
    message: str = ""
    """What happened, in one sentence."""
    signal: int | None = None
    exited_with: int | None = None
    """If it `exited`: the code that `python` itself would have ended with, from 0 to 255. None in older records."""
    error: ErrorInfo | None = None
    value: Pickled | None = None
    """The returned value, of the leader only: those of other hosts are not stored."""
    value_repr: str | None = None
    """Shortened `repr` of a value that could not be pickled."""
    started_at: float = 0.0
    """Seconds since the epoch, like `finished_at`."""
    finished_at: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds that each phase took."""
    python: str = ""
    hostname: str = ""
    warnings: tuple[str, ...] = ()
    lost_peer: bool | None = None
    """Whether it may have failed only because another host had ended; None: no."""
    stopped_at: float | None = None
    """When SIGTERM stopped it while its function ran; None if that did not happen."""
    node: str | None = None
    """The name of the Kubernetes node; None elsewhere."""
    devices_expected: str | None = None
    """As in `layout.Env.DEVICES`; None if no accelerator was expected."""
    devices_seen: str | None = None
    """What JAX found, as `PLATFORM:NUMBER`, with commas between several; None if the function's process did
    not initialise JAX."""
    peak_memory: int | None = None
    """The most bytes that the host used at once: on a cluster its container, with the file cache, else its
    largest process. None if the system does not count them."""
    out_of_memory: bool | None = None
    """Whether the kernel killed it for lack of memory; None: no, or that is not known."""
    version: int = WIRE_VERSION
