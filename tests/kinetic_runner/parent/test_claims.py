from __future__ import annotations

from typing import Any

import pytest

from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.testing import MemoryStore
from kinetic_runner.hosts import Host
from kinetic_runner.parent.claims import AlreadyClaimedError, AlreadyFinishedError, claim_attempt

JOB = JobObjects("job")
KEY = Signer(b"k" * 32)


class Counting:
    """A store that counts its requests."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        self.requests += 1
        return getattr(self.store, name)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def a_claim(attempt: int, pid: int = 1) -> Claim:
    return Claim(job_id="job", attempt=attempt, host=0, hostname="here", pid=pid, claimed_at=1000.0)


def claimed(store: Any, signer: Signer = KEY, *, attempt: int | None = None, pid: int = 1) -> int:
    return claim_attempt(
        store,
        JOB,
        Host(),
        attempt=attempt,
        claim_of=lambda number: a_claim(number, pid),
        pause=lambda _: True,
        signer=signer,
    )


def forge(store: Any, *attempts: int) -> None:
    for attempt in attempts:
        store.write(JOB.claim(attempt, 0), encode(a_claim(attempt, pid=666)))


def test_a_claim_is_signed_and_replaces_only_a_forged_one(store):
    forge(store, 2)

    assert claimed(store, attempt=2) == 2

    KEY.verify(store.read(JOB.claim(2, 0)), JOB.claim(2, 0))
    with pytest.raises(AlreadyClaimedError, match="another process"):
        claimed(store, attempt=2, pid=2)
    assert claimed(store, attempt=2) == 2  # The same process, whose response was lost.


def test_the_next_attempt_follows_the_jobs_own_claims_however_many_are_forged(store):
    assert [claimed(store, pid=pid) for pid in (1, 2)] == [1, 2]
    forge(store, *range(3, 300), 10_000)
    counting = Counting(store)

    assert claimed(counting, pid=3) == 3

    assert counting.requests < 15
    assert claimed(store, UNSIGNED, pid=4) == 300  # Without a key all count.


def test_only_an_outcome_that_the_job_wrote_ends_it(store, capsys):
    cancelled = encode(Outcome(job_id="job", status="cancelled"))
    store.write(JOB.outcome, cancelled)

    assert claimed(store) == 1
    assert "not written by the job" in capsys.readouterr().err
    for signer in (UNSIGNED, KEY):
        store.write(JOB.outcome, signer.sign(cancelled, JOB.outcome))
        with pytest.raises(AlreadyFinishedError, match="cancelled"):
            claimed(store, signer)
    store.write(JOB.outcome, b"[]")
    with pytest.raises(AlreadyFinishedError, match="unknown status"):
        claimed(store, UNSIGNED)
