"""How the hosts of an attempt ended → which of them decides it, and what the attempt was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from kinetic_payload.errors import RecordError
from kinetic_payload.printable import printable
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.host_outcome import HostOutcome, Reason

_OWN: Final = frozenset({"exception", "exited", "timeout"})
_NO_WORD: Final = frozenset({"killed", "unreported"})
_LOST_A_PEER: Final = ("JaxRuntimeError", "XlaRuntimeError")
"""What JAX raises where a host that it talks to is gone, among many other things."""
_SIGABRT: Final = 6
_ABORTED: Final = 128 + _SIGABRT
"""The exit code of SIGABRT."""
_KILLED: Final = 128 + 9
"""The exit code of SIGKILL, of which no host dies because of another."""
_CLOCKS: Final = 5.0
"""Seconds by which the clocks of two hosts may differ."""

Result = Literal["succeeded", "failed", "disrupted", "unknown"]
"""What an attempt was: a disruption is no failure of the function; of what is unknown another attempt was
made all the same, and it counts neither as a failure nor as a disruption."""


@dataclass(frozen=True)
class HostEnd:
    """How one host of an attempt ended."""

    host: int
    succeeded: bool
    reason: Reason
    exit_code: int
    message: str = ""
    first: bool = False
    """Whether it was seen to fail before all others."""
    error: str = ""
    """The type of the exception, if there was one."""
    finished_at: float = 0.0
    digest: str | None = None
    """Of the report that says so, in hex; None if what lies there was not written by the job."""
    lost_peer: bool = False
    """Whether it failed in a way in which hosts fail that lose another one."""
    stopped_at: float = 0.0
    """When SIGTERM came, in seconds since the epoch; 0 if it did not, or if that is not known."""


def end_in(host: int, data: bytes) -> HostEnd:
    """Return the end that the report *data* of *host* describes.

    Raises:
        RecordError: It is no report.
    """
    report = fields_of(data)
    error = report.get("error") or {}
    end = HostEnd(
        host,
        succeeded=report.get("succeeded") is True,
        reason=report.get("reason", ""),
        exit_code=report.get("exit_code", ""),
        message=report.get("message", ""),
        error=error.get("type", "") if isinstance(error, dict) else "",
        finished_at=report.get("finished_at", 0.0),
        digest=hashlib.sha256(data).hexdigest(),
        lost_peer=report.get("lost_peer") is True,
        stopped_at=report.get("stopped_at", 0.0),
    )
    texts = (end.reason, end.message, end.error)
    numbers = (end.exit_code, end.finished_at, end.stopped_at)
    if not (
        all(isinstance(text, str) for text in texts)
        and end.reason in get_args(Reason)
        and all(isinstance(number, int | float) for number in numbers)
    ):
        raise RecordError(f"What host {host} reported is not a valid report.")
    return replace(end, message=printable(end.message), error=printable(end.error))


def is_loss_of_peer(outcome: HostOutcome) -> bool:
    """Return whether *outcome* may be no more than the end of another host that this one talked to.

    JAX aborts the process then, or raises its own exception.
    """
    if outcome.reason == "killed":
        return outcome.signal == _SIGABRT
    error = outcome.error
    return outcome.reason == "exception" and error is not None and error.type.endswith(_LOST_A_PEER)


def deciding(ends: Sequence[HostEnd]) -> HostEnd:
    """Return the host whose end is the job's: the leader's success, or the failure that explains.

    A host that died first, or that the system stopped, explains why others lost it; a host that we stopped
    explains nothing, and one whose JAX failed may only have lost another. Among equals the lowest counts.
    """
    failed = [end for end in ends if not end.succeeded]
    if not failed:
        return min(ends, key=lambda end: end.host)
    lost = [end for end in failed if end.lost_peer]
    if lost:
        # If all say so, it began with the first. Hosts that were stopped later were stopped because of it.
        earliest = min(lost, key=lambda end: (end.finished_at, end.host))
        until = earliest.finished_at + _CLOCKS
        failed = [
            end
            for end in failed
            if not end.lost_peer and (end.reason != "terminated" or end.stopped_at <= until)
        ] or [earliest]
    return min(failed, key=_rank)


def _rank(end: HostEnd) -> tuple[int, float, int]:
    if end.reason in _NO_WORD:
        # JAX aborts where a peer is gone, and that may be seen before the peer has told why it went.
        if end.first:
            return (3 if end.exit_code == _ABORTED else 0), 0, end.host
        return (2 if end.exit_code == _KILLED else 5), 0, end.host
    if end.reason not in _OWN:
        return (2 if end.first else 6), 0, end.host
    if end.error.endswith(_LOST_A_PEER):
        # If all say so, it began with the first.
        return 4, end.finished_at, end.host
    return 1, 0, end.host


def other_failures(ends: Sequence[HostEnd], chosen: HostEnd) -> tuple[int, ...]:
    """Return the other hosts that failed by themselves."""
    return tuple(
        sorted(
            end.host
            for end in ends
            if not end.succeeded and end is not chosen and end.reason != "terminated"
        )
    )


def result_of(ends: Sequence[HostEnd], hosts: int) -> Result:
    """Return what an attempt on *hosts* was, of whose hosts those in *ends* have reported.

    Hosts that lost a peer which did not report do not know whether that failed or was preempted; nor do those
    that were stopped with it.
    """
    if not ends:
        return "unknown"
    chosen = deciding(ends)
    explained = not (chosen.succeeded or chosen.lost_peer or chosen.reason == "terminated")
    if len(ends) < hosts and not explained:
        return "unknown"
    if chosen.succeeded:
        return "succeeded"
    return "disrupted" if chosen.reason == "terminated" else "failed"


def ended_attempts(reports: Mapping[int, Sequence[HostEnd]], hosts: int) -> dict[int, Result]:
    """Return what each attempt was, by its number; *reports* has the ends of its hosts."""
    return {attempt: result_of(ends, hosts) for attempt, ends in sorted(reports.items())}
