"""The result of an attempt, and the host that decides it, from how its hosts ended."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, get_args

from kinetic_payload.errors import RecordError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import EXIT_BAD_NODE, EXIT_NOT_PREPARED, EXIT_TERMINATED
from kinetic_payload.printable import printable
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.host_outcome import HostOutcome, Reason

_OWN: Final = frozenset({"exception", "exited", "timeout"})
_UNREPORTED: Final = frozenset({"killed", "unreported"})
_LOST_A_PEER: Final = (
    "JaxRuntimeError",
    "XlaRuntimeError",
    "torch.distributed.DistBackendError",
    "torch.distributed.DistNetworkError",
    "torch.distributed.DistStoreError",
    "kinetic_runner.child.distributed.DistributedError",
)
"""Errors that JAX and PyTorch raise when a host is gone that they talk to, and for other reasons."""
_PLAIN: Final = "RuntimeError"
"""The type of errors of the same kind that have no type of their own: the text decides about them."""
_TEXT_OF_LOST_PEER: Final = re.compile(
    # gloo names the place in its own source. It has other errors, for instance of an address in use.
    r"gloo/\S+:\d+\].*(?:Connection (?:closed|reset) by peer|Connection refused|Connection timed out"
    r"|Broken pipe|Timed out waiting)"
    r"|Application timeout caused pair closure"
    # NCCL, and what PyTorch adds to its errors.
    r"|ncclRemoteError|remote process exited or there was a network error"
    r"|unexpected exit of a remote peer|NCCL communicator was aborted on rank"
    r"|Watchdog caught collective operation timeout|c10d key-value store .* got error"
    # The coordination service of JAX.
    r"|RPC to coordination service|tensorflow\.CoordinationService"
    r"|JAX distributed service detected fatal errors",
    re.DOTALL,
)
"""What gloo, NCCL and the coordination service of JAX write when a host is gone that they talk to."""
_CONNECTION: Final = frozenset(
    {
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "BrokenPipeError",
    }
)
"""Errors of sockets: of a database as well as of another host. They say nothing unless another host has ended."""
_SIGABRT: Final = 6
_SIGNALS: Final = 128
"""Exit codes beyond this one are those of signals."""
_ABORTED: Final = _SIGNALS + _SIGABRT
"""The exit code of SIGABRT."""
_CLOCKS: Final = 5.0
"""Seconds by which the clocks of two hosts may differ."""

Result = Literal["succeeded", "failed", "disrupted", "bad-node", "unknown"]
"""The result of an attempt. A disruption is not a failure of the function, nor is a node whose accelerator
cannot be initialised. An attempt whose result is unknown was followed by another one; it counts as none of
these."""


@frozen()
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
    """Of the host outcome, in hex; None if the job did not write the object that is there."""
    lost_peer: bool = False
    """Whether it may have failed only because another host was gone."""
    stopped_at: float = 0.0
    """When SIGTERM arrived, in seconds since the epoch; 0 if it did not arrive, or if that is not known."""
    node: str = ""
    """The name of the Kubernetes node, or else of the machine."""
    began: bool = True
    """Whether it may have begun its attempt. If the leader has not, no host has."""


def parse_host_end(host: int, data: bytes) -> HostEnd:
    """Parse *data*, the outcome that *host* stored.

    Raises:
        RecordError: It is not a valid host outcome.
    """
    outcome = fields_of(data)
    error = outcome.get("error") or {}
    end = HostEnd(
        host,
        succeeded=outcome.get("succeeded") is True,
        reason=outcome.get("reason", ""),
        exit_code=outcome.get("exit_code", ""),
        message=outcome.get("message", ""),
        error=error.get("type", "") if isinstance(error, dict) else "",
        finished_at=outcome.get("finished_at", 0.0),
        digest=hashlib.sha256(data).hexdigest(),
        lost_peer=outcome.get("lost_peer") is True and outcome.get("exit_code") != EXIT_BAD_NODE,
        stopped_at=outcome.get("stopped_at", 0.0),
        node=outcome.get("node") or outcome.get("hostname", ""),
        began=outcome.get("phase") != "claim",
    )
    texts = (end.reason, end.message, end.error, end.node)
    numbers = (end.exit_code, end.finished_at, end.stopped_at)
    if not (
        all(isinstance(text, str) for text in texts)
        and end.reason in get_args(Reason)
        and all(isinstance(number, int | float) for number in numbers)
    ):
        raise RecordError(f"The outcome of host {host} is not a valid HostOutcome.")
    return replace(
        end,
        message=printable(end.message),
        error=printable(end.error),
        node=printable(end.node),
    )


def is_loss_of_peer(outcome: HostOutcome) -> bool:
    """Tell whether the host of *outcome* may have failed only because a host that it talked to was gone.

    JAX aborts the process in that case, or raises an exception of its own.
    `outcome.lost_peer` may already say so of the cause of its exception.
    """
    if outcome.reason == "killed":
        return outcome.signal == _SIGABRT
    error = outcome.error
    if outcome.reason != "exception" or error is None:
        return False
    if outcome.exit_code in (EXIT_BAD_NODE, EXIT_NOT_PREPARED):
        return False  # The node, or what the job needs, is the reason.
    return outcome.lost_peer is True or is_error_of_lost_peer(error.type, error.message)


def is_error_of_lost_peer(type_name: str, message: str) -> bool:
    """Tell whether an exception is one of JAX, PyTorch or their libraries that says a host may be gone.

    *type_name* and *message* are its own. Whether a host is gone, only the reports of the others show.
    """
    if type_name == _PLAIN:
        return _TEXT_OF_LOST_PEER.search(message) is not None
    return type_name.endswith(_LOST_A_PEER)


def deciding(ends: Sequence[HostEnd]) -> HostEnd:
    """Return the host that decides the attempt.

    It is the leader if all hosts succeeded, else the host whose failure explains the others.
    A host that died first, or that the system stopped, explains why others lost it. A host that Kinetic stopped
    explains nothing. A host whose JAX failed may only have lost another host, and so may one whose connection
    failed. A bad node explains everything. Among equals the lowest counts.
    """
    failed = [end for end in ends if not end.succeeded]
    if not failed:
        return min(ends, key=lambda end: end.host)
    if bad := [end for end in failed if end.exit_code == EXIT_BAD_NODE]:
        return min(bad, key=lambda end: end.host)
    lost = [end for end in failed if may_have_lost_peer(end)]
    if lost:
        # If all lost a peer, the earliest is the cause. Hosts stopped later were stopped because of it.
        earliest = min(lost, key=lambda end: (end.finished_at, end.host))
        until = earliest.finished_at + _CLOCKS
        failed = [
            end
            for end in failed
            if not may_have_lost_peer(end)
            and (end.reason != "terminated" or end.stopped_at <= until)
        ] or [earliest]
    return min(failed, key=_rank)


def may_have_lost_peer(end: HostEnd) -> bool:
    """Tell whether another host that ended explains the failure of *end*. If none did, the failure is its own."""
    failed_by_connection = end.reason == "exception" and end.error in _CONNECTION
    return end.lost_peer or (failed_by_connection and end.exit_code != EXIT_NOT_PREPARED)


def _rank(end: HostEnd) -> tuple[int, float, int]:
    if end.reason in _UNREPORTED:
        # JAX aborts when a peer is gone. The abort may be seen before the peer has reported why it ended.
        if end.first:
            return (3 if end.exit_code == _ABORTED else 0), 0, end.host
        # Because another host failed, a host is aborted, but never killed by the kernel, nor by SIGSEGV.
        is_cause = end.exit_code > _SIGNALS and end.exit_code not in (_ABORTED, EXIT_TERMINATED)
        return (0 if is_cause else 5), 0, end.host
    if end.reason not in _OWN:
        return (2 if end.first else 6), 0, end.host
    if is_error_of_lost_peer(end.error, end.message) and end.exit_code != EXIT_NOT_PREPARED:
        # If all lost a peer, the earliest is the cause.
        return 4, end.finished_at, end.host
    return 1, 0, end.host


def other_failures(ends: Sequence[HostEnd], chosen: HostEnd) -> tuple[int, ...]:
    """Return the hosts other than *chosen* that failed by themselves."""
    return tuple(
        sorted(
            end.host
            for end in ends
            if not end.succeeded and end is not chosen and end.reason != "terminated"
        )
    )


def result_of(ends: Sequence[HostEnd], hosts: int) -> Result:
    """Return the result of an attempt on *hosts* hosts; *ends* has an item for each host that has reported.

    If a host has not reported, hosts that lost it do not know whether it failed or was preempted. Hosts that
    were stopped with it do not know either, unless the leader was still waiting for all hosts to be there: then the
    function has begun on none of them.
    """
    if not ends:
        return "unknown"
    chosen = deciding(ends)
    explained = not (chosen.succeeded or chosen.lost_peer or chosen.reason == "terminated")
    if len(ends) < hosts and not (explained or never_began(ends)):
        return "unknown"
    if chosen.succeeded:
        return "succeeded"
    if chosen.exit_code == EXIT_BAD_NODE:
        return "bad-node"
    return "disrupted" if chosen.reason == "terminated" else "failed"


def never_began(ends: Iterable[HostEnd]) -> bool:
    """Tell whether the leader ended while it waited for the other hosts: then the function has begun on none."""
    return any(end.host == 0 and not end.began for end in ends)


def ended_attempts(ends: Mapping[int, Sequence[HostEnd]], hosts: int) -> dict[int, Result]:
    """Return the result of each attempt, by its number; *ends* has how its hosts ended."""
    return {attempt: result_of(found, hosts) for attempt, found in sorted(ends.items())}
