"""What a host writes at its end: who reports what → the exit code, and the outcome of the job if it decides it."""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from typing import Any

import pytest

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    IntegrityError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.testing import MemoryStore
from kinetic_runner.hosts import Host
from kinetic_runner.parent.report import Reporter

JOB = JobObjects("job")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def ended(host: int = 0, *, attempt: int = 1, **changes: Any) -> HostOutcome:
    values = {"succeeded": True, "reason": "returned", "phase": "report", "exit_code": 0, **changes}
    return HostOutcome(job_id="job", attempt=attempt, host=host, **values)


def failed(host: int = 0, **changes: Any) -> HostOutcome:
    changes = {"message": f"host {host} broke", **changes}
    return ended(host, **{"succeeded": False, "reason": "exception", "exit_code": 1, **changes})


def reporter(store: Any, host: int = 0, hosts: int = 1, **options: Any) -> Reporter:
    options.setdefault("pause", lambda seconds: threading.Event().wait(seconds))
    return Reporter(store=store, job=JOB, host=Host(host, hosts), **options)


def final(store: Any) -> dict[str, Any] | None:
    return json.loads(store.read(JOB.outcome)) if store.stat(JOB.outcome) else None


class Time:
    """A clock that advances in pauses; SIGTERM arrives at *stop*."""

    def __init__(self, stop: float = float("inf")) -> None:
        self.now = 1000.0
        self.stop = self.now + stop

    def pause(self, seconds: float) -> bool:
        self.now = min(self.now + seconds, max(self.stop, self.now))
        return self.now >= self.stop

    @property
    def passed(self) -> float:
        return self.now - 1000.0


def waiting(store: Any, time: Time, host: int = 0, hosts: int = 2, **options: Any) -> Reporter:
    return reporter(store, host, hosts, pause=time.pause, clock=lambda: time.now, **options)


def others_report(store: Any, *ends: HostOutcome, hosts: int, **options: Any) -> Any:
    """Return a pause in which the other hosts report *ends*."""

    def pause(_seconds: float) -> bool:
        for end in ends:
            reporter(store, end.host, hosts, **options).report(end)
        return False

    return pause


def stopped(_seconds: float) -> bool:
    return True


PREEMPTED = {"reason": "terminated", "exit_code": 143}


@pytest.mark.parametrize(
    ("others", "own", "hosts", "retries", "code", "outcome"),
    [
        # One host: its success decides, its failure only where no other process decides on retries.
        ([], ended(), 1, None, 0, ("succeeded", 0, [])),
        ([], failed(), 1, None, 1, None),
        ([], failed(), 1, 0, 1, ("failed", 0, [])),
        ([], failed(), 1, 1, 1, None),
        ([], failed(**PREEMPTED), 1, 0, 143, None),
        ([], failed(exit_code=2), 1, 5, 2, ("failed", 0, [])),
        # Several hosts: the leader decides on success, and the lowest host that failed on failure.
        ([], ended(1), 2, 0, 0, None),
        ([ended(1)], ended(), 2, 0, 0, ("succeeded", 0, [])),
        ([failed(1)], ended(), 3, None, 1, None),
        ([failed(1)], ended(), 3, 0, 1, ("failed", 1, [])),
        ([failed(1, **PREEMPTED)], ended(), 2, 0, 143, None),
        ([failed(3), failed(1)], failed(2), 4, 0, 1, ("failed", 1, [2, 3])),
    ],
)
def test_the_reports_of_all_hosts_decide_exit_code_and_outcome(
    store: Any,
    others: list[HostOutcome],
    own: HostOutcome,
    hosts: int,
    retries: int | None,
    code: int,
    outcome: tuple[str, int, list[int]] | None,
) -> None:
    others_report(store, *others, hosts=hosts)(0)

    assert waiting(store, Time(), own.host, hosts, retries=retries).report(own) == code

    written = final(store)
    if outcome is None:
        assert written is None
    else:
        decided = (written["status"], written["host"], written["other_failed_hosts"])
        assert decided == outcome
        assert written["message"] == (
            "" if outcome[0] == "succeeded" else f"host {outcome[1]} broke"
        )
        report = store.read(JOB.host_outcome(1, outcome[1]))
        assert written["digest"] == hashlib.sha256(report).hexdigest()


def test_a_write_whose_response_was_lost_is_repeated(store):
    class Forgetful:
        """Writes, and then reports a failure, once for each object."""

        def __init__(self) -> None:
            self.forgotten: set[str] = set()

        def write(self, name: str, *args: Any, **options: Any) -> Any:
            written = store.write(name, *args, **options)
            if name not in self.forgotten:
                self.forgotten.add(name)
                raise OSError("connection reset")
            return written

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    assert reporter(Forgetful(), wait=lambda _: False).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


KEY = Signer(b"k" * 32)
CANCELLED = encode(Outcome(job_id="job", status="cancelled", written_by="client"))


@pytest.mark.parametrize("signer", [UNSIGNED, KEY])
def test_the_first_outcome_stays(store, signer):
    cancelled = signer.sign(CANCELLED, JOB.outcome)
    store.write(JOB.outcome, cancelled)

    reporter(store, signer=signer).report(ended())

    assert store.read(JOB.outcome) == cancelled


@pytest.mark.parametrize("name", [JOB.outcome, JOB.host_outcome(1, 0)])
def test_a_record_that_the_job_did_not_write_is_replaced(store, name):
    store.write(name, CANCELLED if name == JOB.outcome else encode(failed()))

    assert reporter(store, signer=KEY, retries=0).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


@pytest.mark.parametrize("forged", [ended(1), failed(1, message="forged")])
def test_a_forged_report_of_another_host_is_ignored(store, forged):
    store.write(JOB.host_outcome(1, 1), encode(forged))
    pause = others_report(store, ended(1), hosts=2, signer=KEY)

    assert reporter(store, 0, 2, signer=KEY, retries=0, pause=pause).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


# Attempts before this one.


def attempts(store: Any, *reasons: str, signer: Signer = KEY) -> None:
    for number, reason in enumerate(reasons, 1):
        name = JOB.host_outcome(number, 0)
        if reason != "unknown":
            report = failed(attempt=number, reason=reason)
            store.write(name, signer.sign(encode(report), name))


@pytest.mark.parametrize(
    ("earlier", "retries", "is_final"),
    [
        ([], 0, True),
        ([], 1, False),
        (["exception"], 1, True),
        (["terminated"], 1, False),
        (["unknown"], 1, False),
        (["terminated", "exception", "terminated"], 1, True),
        (["terminated", "killed", "timeout", "unknown"], 3, False),
        (["exited", "killed", "timeout", "unreported"], 3, True),
    ],
)
def test_failures_use_up_retries_and_other_attempts_do_not(store, earlier, retries, is_final):
    attempts(store, *earlier)
    number = len(earlier) + 1

    reporter(store, signer=KEY, retries=retries).report(failed(attempt=number))

    assert (final(store) is not None) == is_final
    if is_final:
        assert (final(store)["status"], final(store)["attempt"]) == ("failed", number)


def test_forged_failures_are_not_counted(store):
    attempts(store, "exception", "exception", signer=Signer(b"o" * 32))

    reporter(store, signer=KEY, retries=1).report(failed(attempt=3))

    assert final(store) is None


@pytest.mark.parametrize(
    ("earlier", "silent", "ends"),
    [
        (["unknown", "unknown"], True, True),
        (["unknown", "unknown"], False, False),
        (["unknown"], True, False),
        (["exception", "unknown"], True, True),
        (["terminated", "terminated", "unknown"], True, False),
    ],
)
def test_attempts_without_a_report_consume_retries_where_nothing_else_limits_them(
    store, earlier, silent, ends
):
    attempts(store, *earlier)
    number = len(earlier) + 1
    here = reporter(store, signer=KEY, retries=1, silent_failures=silent)
    refusal = here.refuse(number, preemptions=None, replaced_alone=False)

    assert bool(refusal) is ends
    assert (final(store) is not None) is ends
    if ends:
        assert "2 attempts failed; retries=1 allows 2" in final(store)["message"]
        assert (final(store)["status"], final(store)["attempt"]) == ("failed", number - 1)


# Waiting for others.


def test_a_waiting_leader_sometimes_names_the_missing_hosts_until_it_is_stopped(store):
    time, log = Time(stop=4000), []
    reporter(store, 1, 4).report(ended(1))
    alone = waiting(store, time, hosts=4, other_hosts_seconds=float("inf"), log=log.append)

    assert alone.report(ended()) == 143

    assert final(store) is None
    assert 3 <= len(log) <= 10
    assert "hosts 2, 3" in log[0]
    assert "30 s" in log[0] or "31 s" in log[0]


def test_a_supervised_leader_gives_up_after_a_while(store):
    time = Time()

    assert waiting(store, time, retries=0).report(ended()) == 1

    assert 330 <= time.passed < 340
    assert (final(store)["status"], final(store)["host"]) == ("failed", 1)
    assert "did not report within 330 s" in final(store)["message"]


def test_a_report_that_cannot_be_read_is_a_failure_of_its_host(store):
    store.write(JOB.host_outcome(1, 1), b"[1]")

    assert waiting(store, Time(), retries=0).report(ended()) == 1

    assert (final(store)["status"], final(store)["host"]) == ("failed", 1)
    assert "is not valid" in final(store)["message"]


def test_a_leader_leaves_the_end_of_the_slice_to_a_preempted_host(store):
    time = Time(stop=10)
    reporter(store, 1, 2).report(failed(1, **PREEMPTED))

    assert waiting(store, time, hosts=3, retries=0, linger=40.0).report(ended()) == 143

    assert (time.passed, final(store)) == (10, None)


# A host that lost a peer.


def lost(host: int = 0, **changes: Any) -> HostOutcome:
    changes = {"reason": "killed", "exit_code": 134, "lost_peer": True, **changes}
    return failed(host, finished_at=500.0, **changes)


def test_a_host_that_lost_a_peer_waits_to_be_stopped_and_decides_nothing(store):
    time, log = Time(stop=30), []

    ending = waiting(store, time, 1, retries=0, linger=40.0, log=log.append)
    assert ending.report(lost(1)) == 143

    assert (time.passed, final(store)) == (30, None)
    assert json.loads(store.read(JOB.host_outcome(1, 1)))["lost_peer"] is True
    assert "40 s" in log[0]


def test_a_host_that_lost_a_silent_peer_exits_after_a_while(store):
    time = Time()

    assert waiting(store, time, 1, retries=0, linger=40.0).report(lost(1)) == 134

    assert time.passed == 40
    assert final(store) is None  # Nobody knows whether the other was preempted.


def test_of_an_input_whose_other_host_stays_silent_the_host_that_is_left_decides(store):
    ending = waiting(store, Time(), 1, retries=0, linger=40.0, is_member=True)

    assert ending.report(lost(1)) == 134

    assert final(store)["status"] == "failed"  # Nothing else would count the failure.


def test_an_input_that_succeeded_on_all_hosts_runs_no_more_whatever_began_since(store):
    hosts = [waiting(store, Time(), host, retries=0, is_member=True) for host in (0, 1)]
    for host in (1, 0):
        hosts[host].report(ended(host))
    store.delete(JOB.outcome)
    hosts[0].report(failed(attempt=2, phase="claim", **PREEMPTED))

    refused = [host.refuse(3, preemptions=None, replaced_alone=False) for host in hosts]

    assert refused == ["Attempt 1 had succeeded."] * 2
    assert (final(store)["status"], final(store)["attempt"]) == ("succeeded", 1)


def test_an_input_that_kills_the_process_of_one_host_three_times_has_failed(store):
    leader = waiting(store, Time(), retries=5, is_member=True)
    for attempt in (1, 2, 3):
        assert leader.refuse(attempt, preemptions=None, replaced_alone=False) == ""
        leader.report(failed(attempt=attempt, stopped_at=500.0, **PREEMPTED))
        # What the process says that was started in the place of the killed one.
        other = waiting(store, Time(), 1, retries=5, is_member=True)
        other.report(failed(1, attempt=attempt, **PREEMPTED))

    assert "3 workers ended" in leader.refuse(4, preemptions=None, replaced_alone=False)
    assert final(store)["status"] == "failed"


@pytest.mark.parametrize(
    ("other", "decides"),
    [
        ({"reason": "terminated", "exit_code": 143, "stopped_at": 490.0}, None),
        ({"reason": "exception"}, 1),
        # Stopped because the first was gone, after it had lingered.
        ({"reason": "terminated", "exit_code": 143, "stopped_at": 541.0}, 0),
        # All lost each other.
        ({"exit_code": 1, "lost_peer": True, "finished_at": 500.0}, 0),
    ],
)
def test_the_report_of_the_lost_peer_decides(store, other, decides):
    reporter(store, 1, 2).report(failed(1, **other))
    time = Time()

    assert waiting(store, time, retries=0, linger=40.0).report(lost()) == 134

    assert (final(store) or {}).get("host") == decides
    # If all lost each other, no other host can end the slice.
    assert time.passed >= 40 or decides == 0


def test_a_failed_connection_is_a_failure_unless_another_host_was_preempted(store):
    refused = ErrorInfo("ConnectionRefusedError", "m", "t")
    changes: Any = {"lost_peer": None, "exit_code": 1, "reason": "exception", "error": refused}
    time = Time()
    assert waiting(store, time, 1, retries=0, linger=40.0).report(lost(1, **changes)) == 1
    assert (time.passed, final(store)["host"]) == (40, 1)

    store.delete(JOB.outcome)
    stopped = {"reason": "terminated", "exit_code": 143, "stopped_at": 490.0}
    reporter(store, 0, 2).report(failed(0, attempt=2, **stopped))
    ending = waiting(store, Time(stop=30), 1, retries=0, linger=40.0)
    assert (ending.report(lost(1, attempt=2, **changes)), final(store)) == (143, None)


def test_the_last_bad_node_of_a_slice_ends_the_job_although_the_others_lost_it(store):
    for attempt in range(1, 5):
        reporter(store, 0, 2, retries=0).report(lost(0, attempt=attempt))
        bad = lost(1, attempt=attempt, exit_code=4, reason="exception", node=f"n{attempt}")
        waiting(store, Time(), 1, retries=0, linger=40.0).report(bad)

    assert (final(store)["status"], final(store)["host"]) == ("failed", 1)
    assert "n1, n2, n3, n4" in final(store)["message"]


class Away:
    """Fails for so many writes, then writes to *store*."""

    concurrency = 1

    def __init__(self, store: Any, error: Exception, times: int = 20) -> None:
        self.store = store
        self.times = times
        self.error = error

    def write(self, *args: Any, **options: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return self.store.write(*args, **options)


@pytest.mark.parametrize("error", [BucketNotFoundError("no"), OSError(errno.EFBIG, "too large")])
def test_an_error_that_does_not_pass_is_raised_at_once(store, error):
    with pytest.raises(type(error)):
        reporter(Away(store, error), wait=lambda _: pytest.fail("waited")).report(ended())


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailableError("no answer"),
        CredentialsError("401"),
        StorePermissionError("403"),
        StoreError("billing is disabled"),
        IntegrityError("changed on its way"),
        OSError(errno.ENOSPC, "full"),
    ],
)
def test_an_error_that_may_pass_is_retried_until_the_end_and_reported_once(store, error):
    warnings: list[str] = []

    away = Away(store, error)
    assert reporter(away, wait=lambda _: False, warn=warnings.append).report(ended()) == 0

    assert final(store)["status"] == "succeeded"
    assert len(warnings) == 1
    assert str(error) in warnings[0]
    with pytest.raises(type(error)):
        reporter(Away(store, error), seconds=0.0, wait=lambda _: False).report(ended())


def test_a_stop_neither_ends_the_retries_nor_their_pauses(store):
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    away = Away(store, OSError("away"), 3)
    code = reporter(away, pause=stopped, wait=wait).report(failed(**PREEMPTED))

    assert (code, waited) == (143, [0.1, 0.2, 0.4])
    assert store.stat(JOB.host_outcome(1, 0)) is not None
