from __future__ import annotations

from collections.abc import Iterator

import pytest

from kinetic.jobs.outages import WaitStopped, lasting, log_outages
from kinetic.jobs.stored_logs import follow_stored
from kinetic_payload.errors import (
    BucketNotFoundError,
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_servers.fakes import FakeStore, a_record

OUTAGE = StoreUnavailableError("gs://b does not respond.")


class Flaky(FakeStore):
    """A store whose every second request fails, each list after its first object."""

    def __init__(self, error: StoreError = OUTAGE) -> None:
        super().__init__(remote=True)
        self.error = error
        self.requests = 0
        self.works = True

    def fail(self) -> None:
        self.requests += 1
        if not self.works and self.requests % 2:
            raise self.error

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        self.fail()
        return super().read(name, start=start, end=end)

    def stat(self, name: str) -> ObjectInfo | None:
        self.fail()
        return super().stat(name)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after=start_after):
            yield info
            self.fail()


def through_outages(store: FakeStore, *stops: object) -> Store:
    outages = log_outages(pause=lambda _: None)
    return lasting(store, outages, stopped=lambda: bool(stops))


def test_a_followed_log_outlasts_outages_without_a_lost_or_repeated_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    record, store = a_record(hosts=2), Flaky()
    names = JobObjects(record.job_id)
    for host in (0, 1):
        for number in range(20):
            chunk = f"{names.log_chunks(1, host)}{number:08d}"
            store.write(chunk, f"{host} {number}\nand ".encode())
    reached = through_outages(store)
    assert reached.stat("nothing") is None
    store.works = False

    lines = follow_stored(reached, record, tail=None, ended=lambda: True, pause=lambda: None)
    texts = [line.text.removeprefix("and ") for line in lines]

    expected = [f"{host} {number}" for host in (0, 1) for number in range(20)]
    assert [text for text in texts if text] == expected
    told = "gs://b does not respond. The log goes on as soon as it can be read again."
    assert caplog.text.count(told) == caplog.text.count("does not respond") == 1


def test_a_log_that_is_stopped_during_an_outage_ends() -> None:
    store = Flaky(StorePermissionError("gs://b refuses", hint="Log in."))
    store.write("name", b"data")
    reached = through_outages(store, "now")
    assert reached.read("name") == b"data"
    store.works, store.requests = False, 0

    with pytest.raises(WaitStopped):
        reached.read("name")


def test_errors_that_no_repetition_changes_and_those_of_a_store_never_reached_are_raised() -> None:
    store = Flaky()
    store.works = False
    with pytest.raises(StoreUnavailableError):
        through_outages(store).read("name")
    store.works = True
    with pytest.raises(ObjectNotFoundError):
        through_outages(store).read("name")
    store.works, store.error, store.requests = False, BucketNotFoundError("No bucket."), 1
    gone = through_outages(store)
    assert gone.stat("name") is None
    with pytest.raises(BucketNotFoundError):
        gone.stat("name")
