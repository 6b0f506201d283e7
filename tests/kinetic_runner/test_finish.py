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
from kinetic_payload.records import HostOutcome, Outcome, encode
from kinetic_payload.signing import Signer
from kinetic_payload.store import Location
from kinetic_payload.stores import open_store
from kinetic_runner.finish import Finish
from kinetic_runner.hosts import Host

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


def finish(store: Any, host: int = 0, hosts: int = 1, **options: Any) -> Finish:
    options.setdefault("pause", lambda seconds: threading.Event().wait(seconds))
    return Finish(store=store, job=JOB, host=Host(host, hosts), **options)


def final(store: Any) -> dict[str, Any] | None:
    return json.loads(store.read(JOB.outcome)) if store.stat(JOB.outcome) else None


def test_only_the_leader_speaks_for_the_job(store):
    assert finish(store, 1, 2).report(ended(1)) == 0

    assert final(store) is None


def test_the_leader_waits_for_the_others(store):
    def others_report(_seconds: float) -> bool:
        finish(store, 1, 2).report(ended(1))
        return False

    assert finish(store, 0, 2, pause=others_report).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


def test_a_leader_whose_sibling_failed_does_not_say_success(store):
    finish(store, 2, 3).report(failed(2))

    assert finish(store, 0, 3).report(ended()) == 1

    assert final(store) is None


def test_a_sibling_that_the_system_stopped_leaves_the_job_open(store):
    finish(store, 1, 2).report(failed(1, reason="terminated", exit_code=143))

    assert finish(store, 0, 2, last_attempt=1).report(ended()) == 143

    assert final(store) is None


def test_the_lowest_failing_host_counts_and_the_others_are_named(store):
    for host in (3, 1):
        finish(store, host, 4).report(failed(host))

    def stop_waiting(_seconds: float) -> bool:
        return True

    finish(store, 2, 4, last_attempt=1, pause=stop_waiting).report(failed(2))

    outcome = final(store)
    assert (outcome["host"], outcome["other_failed_hosts"]) == (1, [2, 3])
    assert outcome["message"] == "host 1 broke"


def test_a_leader_told_to_stop_while_it_waits_leaves_the_job_open(store):
    code = finish(store, 0, 2, pause=lambda _: True, last_attempt=1).report(ended())

    assert (code, final(store)) == (143, None)


def test_what_could_not_be_prepared_is_final_on_the_first_of_many_attempts(store):
    finish(store, last_attempt=5).report(failed(exit_code=2))

    assert final(store)["status"] == "failed"


def test_a_job_cancelled_a_moment_ago_stays_cancelled(store):
    cancelled = encode(Outcome(job_id="job", status="cancelled", written_by="client"))
    store.write(JOB.outcome, cancelled)

    finish(store).report(ended())

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

    assert finish(Forgetful(), wait=lambda _: False).report(ended()) == 0

    assert final(store)["status"] == "succeeded"


KEY = Signer(b"k" * 32)


def test_where_there_is_a_key_outcomes_are_signed_as_the_objects_they_are(store):
    finish(store, signer=KEY).report(ended())

    for name in (JOB.outcome, JOB.host_outcome(1, 0)):
        KEY.verify(store.read(name), name)
    digest = hashlib.sha256(store.read(JOB.host_outcome(1, 0))).hexdigest()
    assert final(store)["digest"] == digest


def test_no_leader_vouches_for_what_another_put_in_its_own_place(store):
    store.write(JOB.host_outcome(1, 0), encode(ended()))

    assert finish(store, signer=KEY, last_attempt=1).report(ended()) != 0

    assert (final(store)["status"], "digest" in final(store)) == ("failed", False)
    assert "job did not write" in final(store)["message"]


@pytest.mark.parametrize("forged", [ended(1), failed(1, message="forged")])
def test_no_leader_believes_what_another_put_in_the_place_of_a_sibling(store, forged):
    store.write(JOB.host_outcome(1, 1), encode(forged))

    assert finish(store, 0, 2, signer=KEY, last_attempt=1).report(ended()) != 0

    assert (final(store)["status"], final(store)["host"]) == ("failed", 1)
    assert "digest" not in final(store)
    assert "job did not write" in final(store)["message"]


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
        finish(Away(store, error), wait=lambda _: pytest.fail("waited")).report(ended())


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
    assert finish(away, wait=lambda _: False, say=said.append).report(ended()) == 0

    assert final(store)["status"] == "succeeded"
    assert len(said) == 1
    assert str(error) in said[0]
    with pytest.raises(type(error)):
        finish(Away(store, error), seconds=0.0, wait=lambda _: False).report(ended())


def test_a_stop_does_not_turn_tries_into_a_busy_loop_or_silence(store):
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return False

    words = failed(reason="terminated", exit_code=143)
    code = finish(Away(store, OSError("away"), 3), pause=lambda _: True, wait=wait).report(words)

    assert (code, waited) == (143, [0.1, 0.2, 0.4])
    assert store.stat(JOB.host_outcome(1, 0)) is not None
