"""`Outcome`: the record of how a job ended; `Summary`: what is kept of a job that was cleaned up."""

from __future__ import annotations

from typing import Literal

from kinetic_payload.frozen import frozen
from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord

FinalStatus = Literal["succeeded", "failed", "cancelled"]


@frozen(kw_only=True)
class Outcome:
    """How the job ended, written once: `{job}/outcome.json`."""

    job_id: str
    status: FinalStatus
    attempt: int | None = None
    """The attempt that decided; None if none ran."""
    host: int | None = None
    """The host whose outcome counts: the leader, or the lowest that failed."""
    digest: str | None = None
    """SHA-256 of that host's outcome object."""
    other_failed_hosts: tuple[int, ...] = ()
    message: str = ""
    cause: str | None = None
    """`out-of-memory` if that is why a host could not report; None: its report says why, or nothing is known."""
    cancelled_by: str | None = None
    """Who cancelled it, and where: `ada.laptop`; None if it was not cancelled, or that is not known."""
    written_by: Literal["runner", "supervisor", "client"] = "runner"
    written_at: float = 0.0
    report: HostOutcome | None = None
    """Of a member of a batch, the report that decided, if it is small: then one request shows the value."""
    signature: str | None = None
    version: int = WIRE_VERSION


@frozen(kw_only=True)
class Summary:
    """A job that was cleaned up, as long as its log is kept: `logs/{job}/outcome.json`."""

    job_id: str
    record: JobRecord
    outcome: Outcome
    """With the report that decided, without value and pickled exception."""
    signature: str | None = None
    version: int = WIRE_VERSION
