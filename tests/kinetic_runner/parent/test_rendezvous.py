"""Hosts of a job, each in a thread; its earlier pods are claims in the store."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting
from typing import Any

import pytest

from kinetic_payload.errors import ObjectNotFoundError, StorePermissionError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.attempt_result import result_of
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.records.stored_outcomes import read_host_ends
from kinetic_payload.testing import MemoryStore
from kinetic_runner.hosts import Host
from kinetic_runner.parent.claims import AlreadyFinishedError
from kinetic_runner.parent.rendezvous import Follower, Leader, StoppedError

JOB = JobObjects("job")
KEY = Signer(b"k" * 32)


class Failing:
    """A store that fails at the first writes whose name ends like this, with an error that `retry` raises."""

    def __init__(self, store: Any, ending: str, times: int) -> None:
        self.store, self.ending, self.left = store, ending, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write(self, name: str, data: bytes, **options: Any) -> Any:
        if name.endswith(self.ending) and self.left:
            self.left -= 1
            raise ObjectNotFoundError("The folder of the store is gone for a moment.")
        return self.store.write(name, data, **options)


class Rejecting:
    """A store that rejects all requests while `rejects` is set."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.rejects = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if self.rejects.is_set():
            raise StorePermissionError("gs://b: the permission was revoked.")
        return getattr(self.store, name)


class Pods:
    """Starts hosts of one job, each in a thread."""

    def __init__(self, store: Any, pool: ThreadPoolExecutor) -> None:
        self.store = store
        self.stop = threading.Event()
        self.log: list[str] = []
        self._pool = pool
        self._pid = 1000

    def start(
        self, host: int, hosts: int = 3, *, restarts: int | None = None, **more: float
    ) -> Future[int]:
        self._pid += 1
        kind = Leader if host == 0 else Follower
        waiting = kind(
            store=self.store,
            job=JOB,
            host=Host(host, hosts),
            signer=KEY,
            restarts=restarts,
            claim=lambda number, pid=self._pid: claim(number, host, pid, restarts),  # type: ignore[misc]
            pause=lambda seconds: self.stop.wait(min(seconds, 0.01)),
            log=self.log.append,
            **more,  # type: ignore[arg-type]
        )
        return self._pool.submit(waiting.reach)

    def gone(self, number: int, host: int, *, restarts: int | None = None) -> None:
        name = JOB.claim(number, host)
        self.store.write(name, KEY.sign(encode(claim(number, host, 1, restarts)), name))


def claim(number: int, host: int, pid: int, restarts: int | None) -> Claim:
    return Claim(
        job_id="job",
        attempt=number,
        host=host,
        hostname="h",
        pid=pid,
        claimed_at=1.0,
        restarts=restarts,
    )


@pytest.fixture
def pods() -> Any:
    with ThreadPoolExecutor(16) as pool:
        made = Pods(MemoryStore(), pool)
        yield made
        made.stop.set()


def test_after_a_resume_that_is_no_restart_all_hosts_begin_another_attempt(pods: Pods) -> None:
    # Kueue suspended the JobSet, and resumed it.
    for host in range(3):
        pods.gone(1, host, restarts=0)

    started = [pods.start(host, restarts=0) for host in (1, 2, 0)]

    assert [each.result(60) for each in started] == [2, 2, 2]
    reported = read_host_ends(pods.store, KEY, JOB, 1, 3)
    assert [(end.host, end.reason) for end in reported] == [(1, "terminated"), (2, "terminated")]


def test_a_restart_begins_an_attempt_of_its_own(pods: Pods) -> None:
    pods.gone(1, 0, restarts=0)
    pods.gone(2, 0, restarts=0)  # suspended and resumed
    follower = pods.start(1, 2, restarts=1)
    with pytest.raises(StillWaiting):
        follower.result(0.3)

    assert pods.start(0, 2, restarts=1).result(60) == 3
    assert follower.result(60) == 3
    assert pods.store.stat(JOB.claim(2, 1)) is None


@pytest.mark.parametrize("seed", range(6))
def test_all_hosts_begin_the_next_attempt_however_earlier_pods_ended(pods: Pods, seed: int) -> None:
    luck = random.Random(seed)
    next_attempt = luck.randint(2, 6)
    for number in range(1, next_attempt):
        for host in range(4):
            if host == 0 or luck.random() < 0.6:
                pods.gone(number, host)
    order = luck.sample(range(4), 4)

    started = [pods.start(host, 4) for host in order]

    assert [each.result(60) for each in started] == [next_attempt] * 4


def test_the_wait_for_other_hosts_ends_with_the_job(pods: Pods) -> None:
    waiting = pods.start(1)
    outcome = encode(Outcome(job_id="job", status="cancelled"))
    pods.store.write(JOB.outcome, KEY.sign(outcome, JOB.outcome))
    with pytest.raises(AlreadyFinishedError):
        waiting.result(60)


def test_forged_claims_begin_no_attempt_and_a_forged_outcome_ends_none(pods: Pods) -> None:
    pods.store.write(JOB.claim(1, 0), encode(claim(1, 0, 666, None)))
    waiting = pods.start(1, 2)
    pods.store.write(JOB.gathered(1), encode(claim(1, 0, 666, None)))
    pods.store.write(JOB.outcome, encode(Outcome(job_id="job", status="cancelled")))
    with pytest.raises(StillWaiting):
        waiting.result(0.3)
    # However often it looks.
    assert pods.log.count("job/outcome.json was not written by the job: ignored.") == 1

    assert pods.start(0, 2).result(60) == 1
    assert waiting.result(60) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_all_hosts_begin_the_attempt_together_and_the_leader_names_the_missing_one(
    pods: Pods, order: tuple[int, ...]
) -> None:
    *first, last = order
    started = [pods.start(host) for host in first]
    with pytest.raises(StillWaiting):
        started[0].result(0.3)
    if last != 0:
        assert f"Waiting for host {last}: attempt 1 begins once all 3 hosts are there." in pods.log

    started.append(pods.start(last))

    assert [each.result(60) for each in started] == [1, 1, 1]


@pytest.mark.parametrize("ending", ["host-1.claim", "host-1.json", "gathered.json", "host-0.claim"])
def test_a_write_that_failed_is_repeated(pods: Pods, wait_until: Any, ending: str) -> None:
    for host in range(3):
        pods.gone(1, host)
    pods.store = Failing(pods.store, ending, times=3)

    started = [pods.start(host) for host in (1, 2)]
    if ending == "host-1.json":  # It reports for its predecessor.
        wait_until(lambda: not pods.store.left)
    started.append(pods.start(0))

    assert [each.result(60) for each in started] == [2, 2, 2]
    assert pods.store.left == 0


def test_a_host_whose_access_is_lost_for_a_while_goes_on(pods: Pods, wait_until: Any) -> None:
    pods.store = Rejecting(pods.store)
    started = [pods.start(0), pods.start(1)]
    wait_until(lambda: pods.store.stat(JOB.claim(1, 1)) is not None)

    pods.store.rejects.set()
    wait_until(lambda: len(pods.log) >= 2)
    pods.store.rejects.clear()
    started.append(pods.start(2))

    assert [each.result(60) for each in started] == [1, 1, 1]
    assert "gs://b: the permission was revoked. Retrying for up to 60 min." in pods.log


def test_a_host_without_access_from_the_beginning_or_for_long_ends(
    pods: Pods, wait_until: Any
) -> None:
    pods.store = Rejecting(pods.store)
    pods.store.rejects.set()
    with pytest.raises(StorePermissionError):
        pods.start(0).result(60)
    assert pods.log == []

    pods.store.rejects.clear()
    waits = pods.start(0, refused_seconds=0.2)
    wait_until(lambda: pods.store.stat(JOB.claim(1, 0)) is not None)
    with pytest.raises(StillWaiting):
        waits.result(0.3)
    pods.store.rejects.set()
    with pytest.raises(StorePermissionError):
        waits.result(60)


def test_hosts_that_are_stopped_before_they_begin_report_it(pods: Pods) -> None:
    started = [pods.start(0), pods.start(1)]
    with pytest.raises(StillWaiting):
        started[0].result(0.3)
    pods.stop.set()

    for each in started:
        with pytest.raises(StoppedError):
            each.result(60)

    ends = read_host_ends(pods.store, KEY, JOB, 1, 3)
    assert [(end.host, end.reason, end.exit_code) for end in ends] == [
        (0, "terminated", 143),
        (1, "terminated", 143),
    ]
    assert all(end.stopped_at for end in ends)
    # The leader knows that the third host, which never came, has not failed.
    assert result_of(ends, 3) == "disrupted"
    assert result_of(ends[1:], 3) == "unknown"


def test_a_host_that_is_replaced_while_others_are_missing_begins_with_them(pods: Pods) -> None:
    leader = pods.start(0)
    pods.gone(1, 1)
    others = [pods.start(1)]
    with pytest.raises(StillWaiting):
        others[0].result(0.3)

    others.append(pods.start(2))

    assert [each.result(60) for each in (leader, *others)] == [2, 2, 2]
