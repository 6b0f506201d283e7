from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.layout import JobObjects
from kinetic_payload.lifeline import STOP
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import Signer
from kinetic_payload.stores.store import ObjectInfo
from kinetic_payload.testing import MemoryStore
from kinetic_runner.parent.lease import renew_without_supervisor

JOB = JobObjects("job")
SIGNER = Signer(b"k" * 32)


@pytest.fixture
def lifeline() -> Iterator[tuple[int, Callable[[], None]]]:
    """Return the runner's end, and what lets the supervisor die, which has said something before."""
    mine, theirs = os.pipe()
    os.write(theirs, STOP)
    ends = [theirs]
    yield mine, lambda: os.close(ends.pop())
    for end in (mine, *ends):
        os.close(end)


class Bucket(MemoryStore):
    """A store that is away for the first writes."""

    away = 0

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("away")
        return super().write(name, data, if_generation=if_generation)


def renewed(store: Bucket, lifeline: int, *rounds: Callable[[], object]) -> bool:
    """Renew, with one of *rounds* happening in each pause; return whether it was given up."""
    given_up = threading.Event()
    acts = iter(rounds)
    renew_without_supervisor(
        store,
        JOB,
        lifeline,
        signer=SIGNER,
        holder="laptop",
        give_up=given_up.set,
        pause=lambda _: next(acts)(),
    )
    return given_up.is_set()


def test_nothing_is_renewed_while_the_supervisor_lives(lifeline) -> None:  # type: ignore[no-untyped-def]
    mine, die = lifeline
    store, paused = Bucket(), threading.Event()
    store.write(JOB.outcome, SIGNER.sign(b"{}", JOB.outcome))
    thread = threading.Thread(target=renewed, args=(store, mine, paused.set))
    thread.start()
    assert not paused.is_set()
    die()
    thread.join()
    assert paused.is_set()
    assert os.read(mine, 8) == STOP  # It is for who watches the child.


def test_a_runner_without_a_supervisor_renews_the_lease_until_the_job_has_its_outcome(
    lifeline,  # type: ignore[no-untyped-def]
) -> None:
    mine, die = lifeline
    store = Bucket()
    store.write(JOB.handle, b"{}")
    generations = []

    def look() -> None:
        found = store.stat(JOB.lease)
        generations.append(found and found.generation)

    def finish() -> None:
        outcome = encode(Outcome(job_id="job", status="succeeded"))
        store.write(JOB.outcome, SIGNER.sign(outcome, JOB.outcome))

    die()
    store.away = 1
    assert not renewed(store, mine, lambda: None, look, look, look, finish)

    assert generations[0] is None
    assert generations[1] < generations[2]
    assert fields_of(store.read(JOB.lease))["holder"] == "laptop"


@pytest.mark.parametrize("ended", ["cancelled", "removed"])
def test_who_has_nobody_to_report_to_any_more_gives_up(lifeline, ended: str) -> None:  # type: ignore[no-untyped-def]
    mine, die = lifeline
    store = Bucket()
    outcome = encode(Outcome(job_id="job", status="cancelled", written_by="client"))
    leases = []
    if ended == "cancelled":
        store.write(JOB.handle, b"{}")
        store.write(JOB.outcome, outcome)  # Of somebody who has no key: that is passed over.
    die()

    def cancel() -> None:
        leases.append(store.stat(JOB.lease))
        store.write(JOB.outcome, SIGNER.sign(outcome, JOB.outcome))

    rounds = (lambda: None, cancel) if ended == "cancelled" else (lambda: None,)
    assert renewed(store, mine, *rounds)
    assert None not in leases
    assert (store.stat(JOB.lease) is None) == (ended == "removed")
