"""Every fault at every step of submit and collect ends in the value or in one clear error.

And a submit that failed leaves nothing of its job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import kinetic
from kinetic.errors import (
    KineticError,
    ResultTimeoutError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic.jobs.collect import collect
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.services import Services
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.gcs import GcsStore
from kinetic_payload.stores.gcs.retry import RetryPolicy
from kinetic_payload.threads import check_wanted
from kinetic_servers.fakes import a_record, report_error, report_value

from .conftest import RecordingBackend, submit_to


class Clock(threading.local):
    """Each thread's time: it passes in pauses only, however slow the machine is."""

    now = 0.0


CLOCK = Clock()


def skip(seconds: float) -> None:
    """Let the time pass at once."""
    check_wanted()
    CLOCK.now += seconds


HASTY = RetryPolicy(limit=10, longest=3, clock=lambda: CLOCK.now, pause=skip)
"""Fails after simulated seconds, so that an outage need not last for minutes."""


class Client:
    """A user who submits and collects with few retries."""

    def __init__(self, desk: Any, *, bucket: str = "bucket", retry: RetryPolicy = HASTY) -> None:
        self.home = desk.folder / "here"
        self.backend = RecordingBackend()
        store = GcsStore(f"{bucket}/team", retry=retry)
        self.services = Services(store, self.backend, key_signer=KeySigner(KeyFile(self.home)))  # type: ignore[arg-type]

    def collect(
        self,
        record: JobRecord,
        *,
        timeout: float | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> Any:
        name = JobObjects(record.job_id).handle
        verify = partial(self.services.verify, self.services.store.read(name), name)
        return collect(record, self.services, verify=verify, timeout=timeout, warn=warn).get()


@pytest.fixture
def client(desk: Any) -> Client:
    return Client(desk)


@pytest.fixture
def call(desk: Any) -> Callable[[Client], JobHandle]:
    """Return what submits a call with data, for which everything has to be sent."""
    work = desk.module("work", "def work(data, rest): ...").work
    folder = desk.folder / "set"
    folder.mkdir()
    (folder / "one.txt").write_text("1")
    data = kinetic.Data(str(folder))
    return lambda client: submit_to(client.services, desk.folder, work, data, "x" * 1000)


STEPS = {
    "look for the project": {"operation": "objects.get*", "name": "*contexts/*"},
    "send the project": {"operation": "objects.insert*", "name": "*contexts/*"},
    "look for the data": {"operation": "objects.get*", "name": "*data-markers/*"},
    "list the data": {"operation": "objects.list"},
    "send the data": {"operation": "objects.insert*", "name": "*/packs/*"},
    "mark the data": {"operation": "objects.insert*", "name": "*data-markers/*"},
    "send the call": {"operation": "objects.insert*", "name": "*/payload.pkl"},
    "record": {"operation": "objects.insert*", "name": "*/handle.json"},
}

# `test_gcs_store_faults` has all faults of each request: here are those that leave different traces.
PASSING: dict[str, dict[str, Any]] = {
    "a 503": {"status": 503, "times": 2},
    "a lost answer": {"reset": "after", "times": 1},
    "half an answer": {"reset": "response", "times": 1},
    "a portal's page": {"page": "<html><title>Sign in</title></html>", "times": 2},
}

LASTING: dict[str, tuple[dict[str, Any], type[KineticError]]] = {
    "503s": ({"status": 503}, StoreUnavailableError),
    "resets": ({"reset": "before"}, StoreUnavailableError),
    "lost answers": ({"reset": "after"}, StoreUnavailableError),
    "403s": ({"status": 403}, StorePermissionError),
    "a portal's pages": ({"page": "<html><title>Sign in</title></html>"}, StoreUnavailableError),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_submit_succeeds_despite_a_transient_fault_at_any_step(
    desk: Any, call: Callable[[Client], JobHandle], fault: str, subtests: pytest.Subtests
) -> None:
    for step, requests in STEPS.items():
        client = Client(desk, bucket=f"bucket/{step}")
        planned = desk.server.faults.add(**requests, **PASSING[fault])
        with subtests.test(step):
            handle = call(client)

            assert planned.hits
            assert [record.job_id for record in client.backend.started] == [handle.job_id]
            names = JobObjects(handle.job_id)
            assert desk.of_jobs(f"{step}/team/") == [names.handle, names.payload]
        desk.server.faults.clear()


@pytest.mark.parametrize("fault", LASTING)
def test_a_submit_fails_with_one_error_and_leaves_nothing_if_a_step_keeps_failing(
    desk: Any, call: Callable[[Client], JobHandle], fault: str, subtests: pytest.Subtests
) -> None:
    what, kind = LASTING[fault]
    for step, requests in STEPS.items():
        client = Client(desk, bucket=f"bucket/{step}")
        planned = desk.server.faults.add(**requests, **what)
        with subtests.test(step):
            with pytest.raises(kind) as caught:
                call(client)

            assert planned.hits
            assert "bucket" in caught.value.message
            assert caught.value.hint
            assert desk.of_jobs(f"{step}/team/") == []
            assert client.backend.started == []
            assert not hasattr(caught.value, "__notes__")
            desk.server.faults.clear()
            assert call(client).job_id == client.backend.started[0].job_id
        desk.server.faults.clear()


def test_a_failed_submit_names_objects_that_it_could_not_delete(
    desk: Any,
    client: Client,
    call: Callable[[Client], JobHandle],
) -> None:
    desk.server.faults.add(operation="objects.insert*", name="*/handle.json", status=503)
    desk.server.faults.add(method="DELETE", status=403)

    with pytest.raises(StoreUnavailableError) as caught:
        call(client)

    [left] = desk.of_jobs()
    assert f"gs://bucket/team/{left}" in caught.value.__notes__[0]


# Collecting


def finished(desk: Any, client: Client, value: object) -> JobRecord:
    """Write what a job that returned *value* leaves in the bucket."""
    services = client.services
    record = a_record(bucket_name=str(services.store.location))
    name = JobObjects(record.job_id).handle
    services.store.write(name, services.sign(encode(record), name))
    if isinstance(value, Exception):
        report_error(services.store, record.job_id, value, key_signer=services.key_signer)
    else:
        report_value(services.store, record.job_id, value, key_signer=services.key_signer)
    desk.server.requests.clear()
    return record


READS = {
    "the record": {"operation": "objects.get*", "name": "*/handle.json"},
    "the outcome": {"operation": "objects.get*", "name": "*/outcome.json"},
    "the report": {"operation": "objects.get*", "name": "*/host-0.json"},
    "the value": {"operation": "objects.get*", "name": "*/host-0.pkl"},
}
VALUES = [bytes(100_000), bytes(17 << 20)]


@pytest.mark.parametrize("value", VALUES, ids=["small", "large"])
@pytest.mark.parametrize("fault", PASSING)
def test_a_value_is_collected_despite_a_transient_fault(
    desk: Any, client: Client, fault: str, value: bytes, subtests: pytest.Subtests
) -> None:
    record = finished(desk, client, value)
    for read, requests in READS.items():
        planned = desk.server.faults.add(**requests, **PASSING[fault])
        with subtests.test(read):
            assert Client(desk).collect(record) == value
            assert planned.hits
        desk.server.faults.clear()


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_lasts_is_one_error_and_the_value_is_kept(
    desk: Any, client: Client, fault: str, subtests: pytest.Subtests
) -> None:
    what, lasting = LASTING[fault]
    record = finished(desk, client, VALUES[0])
    for read, requests in READS.items():
        kind = lasting
        if kind is StoreUnavailableError and read in ("the report", "the value"):
            kind = ResultTimeoutError  # The outcome is known: only the user's time ends the wait.
        planned = desk.server.faults.add(**requests, **what)
        with subtests.test(read):
            with pytest.raises(kind) as caught:
                Client(desk).collect(record, timeout=0)

            assert planned.hits
            assert caught.value.hint
            if read != "the record":  # Without it the job is unknown.
                notes = getattr(caught.value, "__notes__", [])
                assert f"attach({record.job_id!r})" in "".join([caught.value.hint, *notes])
        desk.server.faults.clear()
        assert client.collect(record) == VALUES[0]


@pytest.mark.parametrize("read", ["the report", "the value"])
def test_a_collect_waits_for_the_end_of_an_outage_if_the_job_has_ended(
    desk: Any, client: Client, read: str
) -> None:
    record = finished(desk, client, VALUES[0])
    desk.server.faults.add(**READS[read], status=503)
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        if "its result is kept there: the wait for it goes on" in text:
            desk.server.faults.clear()

    assert client.collect(record, warn=warn) == VALUES[0]

    assert record.job_id in warnings[-1]
