"""How an attempt's hosts ended → which of them counts, and whether to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kinetic_payload.layout import EXIT_NOT_PREPARED
from kinetic_payload.records import Reason

_OWN: Final = frozenset({"exception", "exited", "timeout"})
_NO_WORD: Final = frozenset({"killed", "unreported"})
_LOST_A_PEER: Final = ("JaxRuntimeError", "XlaRuntimeError")
"""What JAX raises where a host that it talks to is gone, among many other things."""
_ABORTED: Final = 128 + 6
"""The exit code of SIGABRT."""
_KILLED: Final = 128 + 9
"""The exit code of SIGKILL, of which no host dies because of another."""
_WORTH_A_RETRY: Final = _OWN | _NO_WORD


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


def deciding(ends: Sequence[HostEnd]) -> HostEnd:
    """Return the host whose end is the job's: the leader's success, or the failure that explains.

    A host that died first, or that the system stopped, explains why others lost it; a host that we stopped
    explains nothing, and one whose JAX failed may only have lost another. Among equals the lowest counts.
    """
    failed = [end for end in ends if not end.succeeded]
    if not failed:
        return min(ends, key=lambda end: end.host)
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


def worth_a_retry(end: HostEnd, *, attempt: int, retries: int) -> bool:
    """Decide whether another attempt follows the failed *attempt* that *end* decided.

    What could not be prepared once cannot be prepared again; who told the job to stop meant it.
    """
    if end.succeeded or attempt > retries:
        return False
    return end.reason in _WORTH_A_RETRY and end.exit_code != EXIT_NOT_PREPARED
