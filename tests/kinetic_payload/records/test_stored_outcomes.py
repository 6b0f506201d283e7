from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.retry import Tally
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.stored_outcomes import read_host_ends, tally_before
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Location, Store

JOB = JobObjects("job")
KEY = Signer(b"k" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(Location("folder", str(tmp_path)))


def report(store: Store, attempt: int, host: int, reason: Any, signer: Signer = KEY) -> None:
    outcome = HostOutcome(
        job_id="job", attempt=attempt, host=host, succeeded=reason == "returned", reason=reason,
        phase="call", exit_code=1,
    )  # fmt: skip
    name = JOB.host_outcome(attempt, host)
    store.write(name, signer.sign(encode(outcome), name))


def test_the_ends_are_those_that_hosts_of_the_job_reported(store: Store) -> None:
    report(store, 1, 0, "exception")
    report(store, 1, 1, "returned", UNSIGNED)
    report(store, 1, 3, "terminated")
    report(store, 1, 4, "exception")
    store.write(JOB.host_outcome(1, 2), b"x" * (9 << 20))

    found = {end.host: end.reason for end in read_host_ends(store, KEY, JOB, 1, hosts=4)}
    unsigned = {end.host: end.reason for end in read_host_ends(store, UNSIGNED, JOB, 1, hosts=4)}

    assert found == {0: "exception", 3: "terminated"}
    assert unsigned == {0: "exception", 1: "returned", 3: "terminated"}


def test_attempts_before_this_one_are_counted(store: Store) -> None:
    report(store, 1, 0, "terminated")
    report(store, 1, 1, "terminated")
    report(store, 2, 1, "exception")
    report(store, 4, 0, "exception", UNSIGNED)
    report(store, 5, 0, "killed")

    assert tally_before(store, KEY, JOB, 5, hosts=2) == Tally(failures=1, disruptions=1)
    assert tally_before(store, KEY, JOB, 6, hosts=2) == Tally(failures=2, disruptions=1)
