from dataclasses import replace
from typing import Any

import pytest

from kinetic_payload.errors import RecordError
from kinetic_payload.records.attempt_result import (
    HostEnd,
    deciding,
    ended_attempts,
    is_loss_of_peer,
    other_failures,
    parse_host_end,
)
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome

LOST = "jax.errors.JaxRuntimeError"


def end(host: int, reason: str, *, code: int = 1, finished_at: float = 0.0, **more: Any) -> HostEnd:
    code = 0 if reason == "returned" else code
    kind: Any = reason
    return HostEnd(host, reason == "returned", kind, code, finished_at=finished_at, **more)


def outcome(host: int = 1, **changes: Any) -> HostOutcome:
    return HostOutcome(
        **{"job_id": "job", "attempt": 1, "host": host, "succeeded": False, "reason": "exception"}
        | {"phase": "call", "exit_code": 1}
        | changes
    )


def raised(kind: str, message: str = "m") -> ErrorInfo:
    return ErrorInfo(kind, message, "t")


def lost_peer(host: int, finished_at: float) -> HostEnd:
    return end(host, "killed", code=134, finished_at=finished_at, lost_peer=True)


def lost_in_jax(host: int, finished_at: float) -> HostEnd:
    return end(host, "exception", error=LOST, finished_at=finished_at)


@pytest.mark.parametrize(
    ("ends", "host", "others"),
    [
        ([end(0, "returned"), end(1, "returned")], 0, ()),
        ([end(0, "returned"), end(1, "exception")], 1, ()),
        ([end(0, "exception"), end(1, "exception"), end(2, "returned")], 0, (1,)),
        ([end(0, "terminated"), end(1, "exception", first=True)], 1, ()),
        # A host out of memory makes the others lose it: they abort, or raise that a peer died.
        ([end(0, "killed"), end(1, "killed", first=True)], 1, (0,)),
        ([end(0, "exception"), end(1, "killed", first=True)], 1, (0,)),
        # An exception explains more than a survivor that aborted because of it.
        ([end(0, "killed"), end(1, "exception", first=True)], 1, (0,)),
        # The survivor may even be the first that is seen, but for one that only lost it, too.
        ([end(0, "killed", code=134, first=True), end(1, "exception")], 1, (0,)),
        ([end(0, "exception", error=LOST), end(1, "killed", code=134, first=True)], 1, (0,)),
        ([end(0, "killed", code=134, first=True), end(1, "killed", code=137)], 1, (0,)),
        ([end(0, "exception", error=LOST, first=True), end(1, "killed", code=137)], 1, (0,)),
        # A host that the system preempts leaves the others without it.
        ([end(0, "exception", error=LOST), end(1, "terminated", first=True)], 1, (0,)),
        ([end(0, "killed", code=134), end(1, "terminated", first=True)], 1, (0,)),
        ([end(0, "exception", error="KeyError"), end(1, "terminated", first=True)], 0, ()),
        # What JAX raises may be no more than the end of another host.
        ([end(0, "exception", error=LOST), end(1, "exception", error="ValueError")], 1, (0,)),
        ([end(0, "exception", error=LOST), end(1, "killed")], 0, (1,)),
        # The kernel, or a bug in native code, killed it: no other host did.
        ([end(0, "exception"), end(1, "killed", code=139)], 1, (0,)),
        ([end(0, "exception"), end(1, "killed", code=137)], 1, (0,)),
        ([lost_in_jax(0, 9.0), lost_in_jax(1, 8.0)], 1, (0,)),
        ([end(0, "terminated"), end(1, "unreported")], 1, ()),
        ([end(0, "terminated"), end(1, "terminated")], 0, ()),
        # SIGTERM came before the others lost the host, or a little later by another clock.
        ([lost_peer(0, 50.0), end(1, "terminated", stopped_at=40.0)], 1, (0,)),
        ([lost_peer(0, 50.0), end(1, "terminated", stopped_at=53.0)], 1, (0,)),
        ([lost_peer(0, 50.0), end(1, "terminated")], 1, (0,)),
        # It came because the first host failed, lingered and ended.
        ([lost_peer(0, 50.0), end(1, "terminated", stopped_at=91.0)], 0, ()),
        ([lost_peer(0, 52.0), lost_peer(1, 50.0), end(2, "terminated", stopped_at=91.0)], 1, (0,)),
        # Any other failure of a host explains more.
        ([lost_peer(0, 50.0), end(1, "unreported")], 1, (0,)),
        ([lost_peer(0, 50.0), end(1, "killed", code=139, finished_at=51.0)], 1, (0,)),
        ([lost_peer(0, 50.0), end(1, "exception", finished_at=51.0), end(2, "returned")], 1, (0,)),
    ],
)
def test_the_failure_that_explains_the_others_counts(
    ends: list[HostEnd], host: int, others: tuple[int, ...]
) -> None:
    chosen = deciding(ends)

    assert (chosen.host, other_failures(ends, chosen)) == (host, others)


def test_the_end_of_a_host_is_read_from_its_report() -> None:
    times = {"finished_at": 5.0, "stopped_at": 4.0}

    found = parse_host_end(
        1, encode(outcome(message="a\x1bb", error=raised(LOST), lost_peer=True, **times))
    )

    assert (found.host, found.reason, found.error) == (1, "exception", LOST)
    assert (found.lost_peer, found.stopped_at, found.finished_at) == (True, 4.0, 5.0)
    assert "\x1b" not in found.message
    for broken in (b"", b"[]", b"{}", b'{"reason": ["exception"], "exit_code": 1}'):
        with pytest.raises(RecordError):
            parse_host_end(1, broken)


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({"reason": "killed", "signal": 6}, True),
        ({"reason": "killed", "signal": 9}, False),
        ({"error": raised(LOST)}, True),
        ({"error": raised("ValueError")}, False),
        ({"reason": "timeout", "error": raised(LOST)}, False),
        ({"error": raised("ConnectionResetError")}, False),
        ({"error": raised("kinetic_runner.child.distributed.DistributedError")}, True),
        ({"error": raised(LOST), "exit_code": 4}, False),
        ({"error": raised(LOST), "exit_code": 2}, False),
        # User code raised it because of one of these.
        ({"error": raised("app.E"), "lost_peer": True}, True),
        ({"reason": "exited", "lost_peer": True}, False),
    ],
)
def test_a_peer_may_be_lost_where_jax_aborts_or_raises(changes: dict[str, Any], lost: bool) -> None:
    assert is_loss_of_peer(outcome(**changes)) is lost


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:58054"


@pytest.mark.parametrize(
    ("message", "lost"),
    [
        (GLOO, True),
        ("[../gloo/transport/tcp/pair.cc:589] Read error [10.0.0.2]:25266: Connection reset by peer", True),
        ("[../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation", True),
        ("Application timeout caused pair closure", True),
        ("NCCL error in: ../ProcessGroupNCCL.cpp:825, remote process exited or there was a network error", True),
        ("NCCL error in: ../NCCLUtils.hpp:317, unhandled system error\nncclSystemError: System call failed. "
         "It can be also caused by unexpected exit of a remote peer, you can check NCCL warnings", True),
        ("NCCL communicator was aborted on rank 2.", True),
        ("[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
         "key '0', but store->get('0') got error: Connection reset by peer", True),
        ("UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted", True),
        ("Timed out while calling /tensorflow.CoordinationService/Barrier:", True),
        # The host's own failures.
        ("[../gloo/transport/tcp/pair.cc:185] listen: Address already in use", False),
        ("[enforce fail at /gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 6232 vs 4", False),
        ("NCCL error in: ../ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version 2.17.1", False),
        ("The database closed the connection: Connection closed by peer", False),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
    ],
)  # fmt: skip
def test_the_text_of_a_plain_error_may_show_the_loss_of_a_host(message: str, lost: bool) -> None:
    found = outcome(0, message=f"RuntimeError: {message}", error=raised("RuntimeError", message))
    plain, own = parse_host_end(0, encode(found)), end(1, "exception", error="ValueError")

    assert is_loss_of_peer(found) is lost
    assert not is_loss_of_peer(replace(found, error=raised("app.E", message)))
    # It gives way to a failure of another host, and hides nothing where there is none.
    assert deciding([plain, own]).host == (1 if lost else 0)
    ends = [replace(plain, lost_peer=lost), end(1, "returned")]
    assert (deciding(ends).host, ended_attempts({1: ends}, 2)) == (0, {1: "failed"})


def test_the_result_of_an_attempt_follows_from_the_ends_of_its_hosts() -> None:
    ended = ended_attempts(
        {
            1: [end(0, "terminated"), end(1, "terminated")],
            2: [end(0, "terminated"), end(1, "exception")],
            3: [],
            4: [end(0, "returned")],
            5: [lost_peer(0, 50.0)],
            6: [lost_peer(0, 50.0), lost_peer(1, 51.0)],
            7: [lost_peer(0, 50.0), end(1, "terminated", stopped_at=40.0)],
            8: [end(0, "killed", code=137)],
            9: [end(0, "returned"), end(1, "returned")],
            # The other was killed with its runner, as where a pod is out of memory, and this one restarted.
            10: [end(0, "terminated")],
            # The other hosts failed because of the bad node, or before they noticed.
            11: [end(0, "exception", error=LOST), end(1, "exception", code=4)],
            12: [end(0, "exception"), end(1, "exception", code=4)],
            13: [lost_peer(0, 50.0), end(1, "exception", code=4)],
            14: [end(1, "exception", code=4)],
        },
        hosts=2,
    )

    assert list(ended.values()) == [
        *("disrupted", "failed", "unknown", "unknown", "unknown"),
        *("failed", "disrupted", "failed", "succeeded", "unknown"),
        *("bad-node", "bad-node", "bad-node", "bad-node"),
    ]


def test_an_unreachable_database_is_a_failure() -> None:
    refused = end(0, "exception", error="ConnectionRefusedError", finished_at=50.0)
    others = [None, end(1, "returned"), end(1, "terminated", stopped_at=91.0)]

    results = [
        ended_attempts({1: [refused, *([other] if other else [])]}, 2)[1] for other in others
    ]

    assert results == ["failed", "failed", "failed"]
    preempted = end(1, "terminated", stopped_at=40.0)
    assert ended_attempts({1: [refused, preempted]}, 2) == {1: "disrupted"}


def test_a_bad_node_is_never_a_loss_of_another_host() -> None:
    error = raised("RuntimeError", "Unable to initialize backend")
    bad = outcome(exit_code=4, error=error, finished_at=50.0, lost_peer=True)
    ends = [lost_peer(0, 40.0), parse_host_end(1, encode(bad))]

    assert (deciding(ends).host, ended_attempts({1: ends}, 3)) == (1, {1: "bad-node"})
