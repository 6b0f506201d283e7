from __future__ import annotations

import errno
import hashlib
import json
import threading
from pathlib import Path
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
from kinetic_payload.records.signing import Signer
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Location
from kinetic_runner.hosts import Host
from kinetic_runner.parent.report import Reporter

JOB = JobObjects("job")


@pytest.fixture
def store(tmp_path: Path) -> Any:
    return open_store(Location("folder", str(tmp_path)))


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


def test_only_the_leader_speaks_for_the_job(store):
    assert reporter(store, 1, 2).report(ended(1)) == 0

    assert final(store) is None


def test_the_leader_waits_for_the_others(store):
    def others_report(_seconds: float) -> bool:
        reporter(store, 1, 2).report(ended(1))
        return False

    assert reporter(store, 0, 2, pause=others_report).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


def test_a_leader_whose_sibling_failed_does_not_say_success(store):
    reporter(store, 2, 3).report(failed(2))

    assert reporter(store, 0, 3).report(ended()) == 1

    assert final(store) is None


def test_a_sibling_that_the_system_stopped_leaves_the_job_open(store):
    reporter(store, 1, 2).report(failed(1, reason="terminated", exit_code=143))

    assert reporter(store, 0, 2, retries=0).report(ended()) == 143

    assert final(store) is None


def test_the_lowest_failing_host_counts_and_the_others_are_named(store):
    for host in (3, 1):
        reporter(store, host, 4).report(failed(host))

    def stop_waiting(_seconds: float) -> bool:
        return True

    reporter(store, 2, 4, retries=0, pause=stop_waiting).report(failed(2))

    outcome = final(store)
    assert (outcome["host"], outcome["other_failed_hosts"]) == (1, [2, 3])
    assert outcome["message"] == "host 1 broke"


def test_a_leader_told_to_stop_while_it_waits_leaves_the_job_open(store):
    code = reporter(store, 0, 2, pause=lambda _: True, retries=0).report(ended())

    assert (code, final(store)) == (143, None)


def test_what_could_not_be_prepared_is_final_on_the_first_of_many_attempts(store):
    reporter(store, retries=5).report(failed(exit_code=2))

    assert final(store)["status"] == "failed"


def test_a_job_cancelled_a_moment_ago_stays_cancelled(store):
    cancelled = encode(Outcome(job_id="job", status="cancelled", written_by="client"))
    store.write(JOB.outcome, cancelled)

    reporter(store).report(ended())

    assert store.read(JOB.outcome) == cancelled


def test_a_store_that_loses_its_answer_is_asked_again(store):
    class Forgetful:
        """Writes, and then says that it could not."""

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


def test_where_there_is_a_key_outcomes_are_signed_as_the_objects_they_are(store):
    reporter(store, signer=KEY).report(ended())

    for name in (JOB.outcome, JOB.host_outcome(1, 0)):
        KEY.verify(store.read(name), name)
    digest = hashlib.sha256(store.read(JOB.host_outcome(1, 0))).hexdigest()
    assert final(store)["digest"] == digest


@pytest.mark.parametrize("name", [JOB.outcome, JOB.host_outcome(1, 0)])
def test_what_another_put_in_the_place_of_a_record_is_replaced(store, name):
    cancelled = Outcome(job_id="job", status="cancelled", written_by="client")
    store.write(name, encode(cancelled if name == JOB.outcome else failed()))

    assert reporter(store, signer=KEY, retries=0).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


def test_a_cancellation_by_a_client_that_has_the_key_stays(store):
    cancelled = encode(Outcome(job_id="job", status="cancelled", written_by="client"))
    store.write(JOB.outcome, KEY.sign(cancelled, JOB.outcome))

    reporter(store, signer=KEY).report(ended())

    assert final(store)["status"] == "cancelled"


@pytest.mark.parametrize("forged", [ended(1), failed(1, message="forged")])
def test_what_another_put_in_the_place_of_a_sibling_is_waited_out(store, forged):
    store.write(JOB.host_outcome(1, 1), encode(forged))

    def other_host_reports(_seconds: float) -> bool:
        reporter(store, 1, 2, signer=KEY).report(ended(1))
        return False

    assert (
        reporter(store, 0, 2, signer=KEY, retries=0, pause=other_host_reports).report(ended()) == 0
    )

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
def test_failures_are_counted_and_not_attempts(store, earlier, retries, is_final):
    attempts(store, *earlier)
    number = len(earlier) + 1

    reporter(store, signer=KEY, retries=retries).report(failed(attempt=number))

    assert (final(store) is not None) == is_final
    if is_final:
        assert (final(store)["status"], final(store)["attempt"]) == ("failed", number)


def test_failures_that_others_report_are_not_counted(store):
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
    refusal = reporter(
        store, signer=KEY, retries=1, silent_failures=silent
    ).refuse_if_out_of_retries(number)

    assert bool(refusal) is ends
    assert (final(store) is not None) is ends
    if ends:
        assert "2 attempts failed; retries=1 allows 2" in final(store)["message"]
        assert (final(store)["status"], final(store)["attempt"]) == ("failed", number - 1)


def test_disruptions_beyond_those_that_are_allowed_end_the_job(store):
    attempts(store, "terminated", "exception", "terminated", "unknown")
    here = reporter(store, signer=KEY)

    assert here.refuse_if_preempted(5, 2) == ""
    assert final(store) is None
    assert "Preempted 2 times; preemptions=1 allows 1" in here.refuse_if_preempted(5, 1)
    assert (final(store)["status"], final(store)["attempt"]) == ("failed", 4)
    KEY.verify(store.read(JOB.outcome), JOB.outcome)


# Waiting for others.


class Time:
    """Passes when somebody pauses; SIGTERM comes at *stop*."""

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


def test_a_leader_names_those_it_waits_for_seldom_and_until_it_is_stopped(store):
    time, said = Time(stop=4000), []
    reporter(store, 1, 4).report(ended(1))
    alone = waiting(store, time, hosts=4, other_hosts_seconds=float("inf"), log=said.append)

    assert alone.report(ended()) == 143

    assert final(store) is None
    assert 3 <= len(said) <= 10
    assert "hosts 2, 3" in said[0]
    assert "30 s" in said[0] or "31 s" in said[0]


def test_a_supervised_leader_gives_up_after_a_while(store):
    time = Time()

    assert waiting(store, time, retries=0).report(ended()) == 1

    assert 330 <= time.passed < 340
    assert (final(store)["status"], final(store)["host"]) == ("failed", 1)
    assert "did not report within 330 s" in final(store)["message"]


def test_a_leader_whose_sibling_was_preempted_leaves_the_end_of_the_slice_to_it(store):
    time = Time(stop=10)
    reporter(store, 1, 2).report(failed(1, reason="terminated", exit_code=143))

    assert waiting(store, time, hosts=3, retries=0, linger=40.0).report(ended()) == 143

    assert (time.passed, final(store)) == (10, None)


# A host that lost a peer.


def lost(host: int = 0, **changes: Any) -> HostOutcome:
    changes = {"reason": "killed", "exit_code": 134, "lost_peer": True, **changes}
    return failed(host, finished_at=500.0, **changes)


def test_a_host_that_lost_a_peer_lingers_until_it_is_stopped_and_ends_nothing(store):
    time, said = Time(stop=30), []

    ending = waiting(store, time, 1, retries=0, linger=40.0, log=said.append)
    assert ending.report(lost(1)) == 143

    assert (time.passed, final(store)) == (30, None)
    assert json.loads(store.read(JOB.host_outcome(1, 1)))["lost_peer"] is True
    assert "40 s" in said[0]


def test_a_host_that_lost_a_peer_of_which_nothing_is_heard_exits_after_a_while(store):
    time = Time()

    assert waiting(store, time, 1, retries=0, linger=40.0).report(lost(1)) == 134

    assert time.passed == 40
    assert final(store) is None  # Nobody knows whether the other was preempted.


@pytest.mark.parametrize(
    ("other", "decides"),
    [
        ({"reason": "terminated", "exit_code": 143, "stopped_at": 490.0}, None),
        ({"reason": "exception"}, 1),
        # Stopped because the first was gone, after it had lingered.
        ({"reason": "terminated", "exit_code": 143, "stopped_at": 541.0}, 0),
    ],
)
def test_what_a_lost_peer_reports_decides_and_never_who_lost_it(store, other, decides):
    reporter(store, 1, 2).report(failed(1, **other))
    time = Time()

    assert waiting(store, time, retries=0, linger=40.0).report(lost()) == 134

    assert (final(store) or {}).get("host") == decides
    # Where all lost each other nobody is left who could end the slice.
    assert time.passed >= 40 or decides == 0


def test_hosts_that_all_lost_each_other_fail_at_once(store):
    reporter(store, 1, 2).report(lost(1, exit_code=1, reason="exception"))
    time = Time()

    assert waiting(store, time, retries=0, linger=40.0).report(lost()) == 134

    assert time.passed == 0
    assert (final(store)["status"], final(store)["host"]) == ("failed", 0)


def test_a_failed_connection_lets_a_preempted_host_decide_and_else_is_a_failure(store):
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
def test_what_a_store_will_never_take_is_not_tried_again(store, error):
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
def test_whatever_may_pass_is_tried_again_at_the_end_and_reported_once(store, error):
    said: list[str] = []

    away = Away(store, error)
    assert reporter(away, wait=lambda _: False, warn=said.append).report(ended()) == 0

    assert final(store)["status"] == "succeeded"
    assert len(said) == 1
    assert str(error) in said[0]
    with pytest.raises(type(error)):
        reporter(Away(store, error), seconds=0.0, wait=lambda _: False).report(ended())


def test_a_stop_does_not_turn_tries_into_a_busy_loop_or_silence(store):
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    words = failed(reason="terminated", exit_code=143)
    code = reporter(Away(store, OSError("away"), 3), pause=lambda _: True, wait=wait).report(words)

    assert (code, waited) == (143, [0.1, 0.2, 0.4])
    assert store.stat(JOB.host_outcome(1, 0)) is not None


def test_the_fourth_bad_node_ends_the_job_and_all_are_named(store):
    def bad(attempt: int) -> int:
        outcome = failed(attempt=attempt, exit_code=4, message="Busy.", node=f"node-{attempt % 3}")
        return reporter(store, retries=0).report(outcome)

    assert [bad(attempt) for attempt in (1, 2, 3)] == [4, 4, 4]
    assert final(store) is None
    assert bad(4) == 2

    assert final(store)["message"] == "4 attempts met a bad node (node-0, node-1, node-2). Busy."
    assert final(store)["status"] == "failed"
