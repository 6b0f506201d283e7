from __future__ import annotations

import json

import pytest

from kinetic.retention.needs import read_needs, submitting
from kinetic_payload.layout import JobObjects
from kinetic_payload.testing import MemoryStore

BATCH = JobObjects("grp-0123abcd")


def member(index: int) -> JobObjects:
    return JobObjects(f"cpu-f-20260101-000000-0123abcd-{index}")


MANIFEST = {"total_expected": 3, "failed": {"2": "why"}, "job": {"context_digest": "c" * 64}}


@pytest.mark.parametrize(
    ("written", "ended"),
    [
        ({}, False),
        ({member(0).outcome: ""}, False),
        ({member(0).outcome: "", member(1).outcome: ""}, True),
        ({BATCH.outcome: "cancelled", member(0).claim(1, 0): ""}, True),
        ({BATCH.outcome: "failed", member(0).claim(1, 0): ""}, False),
        ({BATCH.outcome: "failed", member(0).claim(1, 0): "", member(0).outcome: ""}, True),
    ],
    ids=["none", "one", "all", "cancelled", "stopped, and one goes on", "stopped, all ended"],
)
def test_a_batch_has_ended_when_none_of_its_inputs_can_run(
    written: dict[str, str], ended: bool
) -> None:
    store = MemoryStore()
    store.write(BATCH.handle, json.dumps(MANIFEST).encode())
    store.write(BATCH.payload, b"{}\n")
    for name, status in written.items():
        store.write(name, json.dumps({"status": status}).encode())

    needs = read_needs(store)

    assert (BATCH.job_id in needs.ended) is ended
    assert needs.job(member(0).job_id) is not ended
    assert needs.contexts == (set() if ended else {"c" * 64})


def test_a_batch_whose_values_were_collected_has_ended() -> None:
    store = MemoryStore()
    store.write(BATCH.handle, json.dumps(MANIFEST).encode())

    needs = read_needs(store)

    assert (set(needs.ended), needs.unclear) == ({BATCH.job_id}, [])
    store.write(member(0).claim(1, 0), b"")
    assert read_needs(store).unfinished == {BATCH.job_id}


def test_a_payload_without_a_record_is_a_submit_for_a_day() -> None:
    store = MemoryStore()
    job = JobObjects("cpu-f-20260101-000000-abcdef0")
    for name in (job.payload, BATCH.payload):
        store.write(name, b"")
    needs, now = read_needs(store), store.now()

    assert list(submitting(store, needs, now)) == [job.job_id, BATCH.job_id]
    assert list(submitting(store, needs, now + 90_000)) == []
