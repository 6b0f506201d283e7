"""A lease says elsewhere that a job lives: how it is kept, and what is read from it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from kinetic.backends.local.other_machines import OtherMachines, observation_of
from kinetic.backends.local.watch import LocalWatch
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.lease import LeaseRenewal
from kinetic.jobs.presence import STARTING, Heartbeat, Presence, presence_of
from kinetic.testing import a_launch, eventually
from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.layout import LEASE_SECONDS, JobObjects
from kinetic_payload.records.decode import decode
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.lease import Lease
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.stores.store import ObjectInfo
from kinetic_payload.testing import MemoryStore

HOLDER = "laptop (~/.kinetic)"


class Bucket(MemoryStore):
    """A store whose clock can be turned on, and that can be away."""

    def __init__(self) -> None:
        super().__init__()
        self.later = 0.0
        self.away = False
        self.tries = 0
        self.looks = 0

    def now(self) -> float:
        self.looks += 1  # Who looks at a lease asks how old it is.
        return super().now() + self.later

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        self.tries += 1
        if self.away:
            raise StoreUnavailableError("away")
        return super().write(name, data, if_generation=if_generation)


@pytest.fixture
def store() -> Bucket:
    return Bucket()


@pytest.fixture
def record(store: Bucket) -> JobRecord:
    return a_launch(store, "").record


@contextmanager
def kept(
    store: Bucket, record: JobRecord, seconds: float = 0.03, signer: Signer = UNSIGNED
) -> Iterator[threading.Event]:
    """Keep a lease; the event is set when the job is to stop."""
    stopped = threading.Event()
    keeper = LeaseRenewal(
        lambda: store,
        record.job_id,
        holder=HOLDER,
        seconds=seconds,
        stop=stopped.set,
        signer=signer,
        first=0.0,
    )
    try:
        yield stopped
    finally:
        keeper.close(60)


@contextmanager
def awaited(store: Bucket, record: JobRecord) -> Iterator[Callable[[], None]]:
    """Have somebody wait for the job's end, which comes in the block.

    What is yielded returns when they have looked and found it running.
    """
    waiting = threading.Thread(
        target=OtherMachines(store).await_end,
        args=(record,),
        kwargs={"timeout": 100, "poll_interval": 0.01},
    )

    def found_running() -> None:
        before = store.looks
        eventually(lambda: store.looks >= before + 2 or not waiting.is_alive())
        assert waiting.is_alive()

    waiting.start()
    found_running()
    yield found_running
    waiting.join(60)
    assert not waiting.is_alive()


def lease_of(record: JobRecord) -> str:
    return JobObjects(record.job_id).lease


def outcome(record: JobRecord, status: str, by: str) -> bytes:
    return encode(Outcome(job_id=record.job_id, status=status, written_by=by))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heartbeat", "expected"),
    [
        (Heartbeat(now=1000.0, holder="x", renewed=1000.0), Presence.ALIVE),
        (Heartbeat(now=1000.0, holder="x", renewed=1000.0 - LEASE_SECONDS), Presence.ALIVE),
        (Heartbeat(now=1000.0, holder="x", renewed=1000.0 - LEASE_SECONDS - 6), Presence.LOST),
        (Heartbeat(now=1000.0, holder="x", renewed=994.0, seconds=0.5), Presence.LOST),
        (Heartbeat(now=1000.0, holder="x", renewed=1001.0), Presence.ALIVE),
        (Heartbeat(now=1000.0, recorded=1000.0 - STARTING + 1), Presence.STARTING),
        (Heartbeat(now=1000.0, recorded=1000.5), Presence.STARTING),
        (Heartbeat(now=1000.0, recorded=1000.0 - STARTING), Presence.ABSENT),
        (Heartbeat(now=1000.0), Presence.ABSENT),
    ],
)
def test_what_became_of_a_supervisor_follows_its_lease_and_then_the_record(
    heartbeat: Heartbeat, expected: Presence
) -> None:
    assert presence_of(heartbeat) is expected


def test_a_lost_supervisor_is_a_failure_that_names_it_and_is_not_final() -> None:
    heartbeat = Heartbeat(now=1e9, holder=HOLDER, renewed=1e9 - 3600)

    seen = observation_of(heartbeat, presence_of(heartbeat))

    assert (seen.status, seen.lost, seen.vanished) == (JobStatus.FAILED, True, False)
    assert HOLDER in seen.reason
    assert "been silent since 2001-09-09 00:46:40 UTC" in seen.reason


def test_a_supervisor_that_was_never_heard_of_may_come_yet() -> None:
    heartbeat = Heartbeat(now=1e9, recorded=1e9 - 3600)

    seen = observation_of(heartbeat, presence_of(heartbeat))

    # Were it final, whoever looks would write an outcome, signed with a key that is not the job's.
    assert (seen.status, seen.lost, seen.vanished) == (JobStatus.NOT_FOUND, True, False)
    assert "never wrote a lease" in seen.reason


def test_a_lease_is_renewed_again_and_again_and_removed_at_the_end(
    store: Bucket, record: JobRecord
) -> None:
    seen = OtherMachines(store)
    store.later = -3600.0  # However long a thread may rest, it sees no lease that ran out.
    assert seen.observe(record).status is JobStatus.PENDING
    with kept(store, record) as stopped:
        eventually(lambda: store.tries > 5)
        lease = decode(Lease, store.read(lease_of(record)), name="lease")
        assert (lease.job_id, lease.holder, lease.seconds) == (record.job_id, HOLDER, 0.03)
        assert seen.observe(record).status is JobStatus.RUNNING
        assert HOLDER in seen.observe(record).reason
    assert store.stat(lease_of(record)) is None
    assert not stopped.is_set()


def test_a_store_that_is_away_costs_the_lease_nothing_but_time(
    store: Bucket, record: JobRecord
) -> None:
    store.away = True
    with kept(store, record) as stopped:
        eventually(lambda: store.tries > 3)
        store.away = False
        eventually(lambda: store.stat(lease_of(record)))
        assert not stopped.is_set()


@pytest.mark.parametrize(
    ("status", "by", "stops"),
    [("cancelled", "client", True), ("failed", "client", True), ("succeeded", "runner", False)],
)
def test_an_outcome_that_was_written_elsewhere_stops_the_job(
    store: Bucket, record: JobRecord, status: str, by: str, stops: bool
) -> None:
    store.write(JobObjects(record.job_id).outcome, outcome(record, status, by))
    with kept(store, record) as stopped:
        before = store.tries
        eventually(lambda: store.tries > before + 3)
        assert stopped.is_set() is stops


@pytest.mark.parametrize(("key", "stops"), [(b"theirs", False), (None, False), (b"ours", True)])
def test_only_who_has_the_key_stops_a_job_by_its_outcome(
    store: Bucket, record: JobRecord, key: bytes | None, stops: bool
) -> None:
    name = JobObjects(record.job_id).outcome
    store.write(name, Signer(key).sign(outcome(record, "cancelled", "client"), name))

    with kept(store, record, signer=Signer(b"ours")) as stopped:
        before = store.tries
        eventually(lambda: store.tries > before + 3)
        assert stopped.is_set() is stops


def test_what_a_holder_calls_itself_cannot_steer_a_terminal(
    store: Bucket, record: JobRecord
) -> None:
    lease = Lease(job_id=record.job_id, holder="\x1b]0;owned\x07\x9b2J", seconds=30)
    store.write(lease_of(record), encode(lease))

    reason = OtherMachines(store).observe(record).reason

    assert reason == "It runs on \\x1b]0;owned\\x07\\x9b2J."


def test_a_lease_that_somebody_else_touched_is_taken_back_while_the_record_is_there(
    store: Bucket, record: JobRecord
) -> None:
    with kept(store, record) as stopped:
        eventually(lambda: store.stat(lease_of(record)))
        store.delete(lease_of(record))
        eventually(lambda: store.stat(lease_of(record)))
        assert not stopped.is_set()


def test_a_job_that_was_cleaned_up_elsewhere_stops_and_leaves_nothing_behind(
    store: Bucket, record: JobRecord
) -> None:
    names = JobObjects(record.job_id)
    with kept(store, record) as stopped:
        eventually(lambda: store.stat(names.lease))
        store.delete(names.handle)
        store.delete(names.payload)
        store.delete(names.lease)
        assert stopped.wait(60)
        # What an attempt that is being stopped still says.
        store.write(names.host_outcome(1, 0), b"{}")
        store.write(names.outcome, b"{}")
    assert store.names() == []


@pytest.mark.parametrize(
    "lease",
    [
        b"\xff not json",
        b'{"job_id": "%s", "holder": "x", "seconds": 1e300}',
        b'{"job_id": "%s", "holder": "x", "seconds": -1}',
        b'{"job_id": "%s", "holder": "x", "seconds": 1e999}',
        b'{"job_id": "another", "holder": "x", "seconds": 600}',
        b" " * (1 << 20),
    ],
)
def test_a_lease_that_makes_no_sense_is_one_of_the_usual_length(
    store: Bucket, record: JobRecord, lease: bytes
) -> None:
    store.write(lease_of(record), lease.replace(b"%s", record.job_id.encode()))
    seen = OtherMachines(store)
    assert seen.observe(record).status is JobStatus.RUNNING
    store.later = LEASE_SECONDS + 6
    assert seen.observe(record).lost


def test_waiting_returns_at_each_change_and_otherwise_when_the_time_is_up(
    store: Bucket, record: JobRecord
) -> None:
    events = OtherMachines(store).events(record)
    with LocalWatch([lambda: events]) as watch:
        watch.wait(None)  # The first look is news.
        watch.wait(0.01)
        with kept(store, record):
            watch.wait(None)
        watch.wait(None)
        store.write(JobObjects(record.job_id).outcome, outcome(record, "succeeded", "runner"))
        watch.wait(None)


def test_the_end_of_a_job_elsewhere_is_waited_for_until_its_lease_is_gone(
    store: Bucket, record: JobRecord
) -> None:
    seen = OtherMachines(store)
    store.write(lease_of(record), encode(Lease(job_id=record.job_id, holder=HOLDER, seconds=600)))
    with pytest.raises(JobError, match="laptop") as raised:
        seen.await_end(record, timeout=0.01, poll_interval=0.01)
    assert raised.value.job_id == record.job_id

    store.later = STARTING
    with awaited(store, record):
        store.delete(lease_of(record))


def test_a_supervisor_that_is_lost_is_not_waited_for(store: Bucket, record: JobRecord) -> None:
    store.write(lease_of(record), encode(Lease(job_id=record.job_id, holder=HOLDER, seconds=1)))
    store.later = 7
    OtherMachines(store).await_end(record, timeout=20, poll_interval=10)


def test_a_job_that_ended_before_its_first_lease_is_over_when_all_its_hosts_reported(
    store: Bucket, record: JobRecord
) -> None:
    record, names = replace(record, hosts=2), JobObjects(record.job_id)
    store.write(names.outcome, outcome(record, "cancelled", "client"))
    reports = {
        names.host_outcome(1, host): HostOutcome(
            job_id=record.job_id, attempt=1, host=host, succeeded=False, reason="terminated",
            phase="call", exit_code=143,
        )
        for host in range(2)
    }  # fmt: skip
    first, last = reports
    with awaited(store, record) as found_running:
        store.write(first, encode(reports[first]))
        found_running()
        store.write(last, encode(reports[last]))
