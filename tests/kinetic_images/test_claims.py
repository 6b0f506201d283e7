"""A claim is held exactly as long as its work runs, whatever happens to the bucket and to the process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

import pytest

from kinetic_images.claims import Claims
from kinetic_payload.errors import StoreUnavailableError
from kinetic_payload.stores.gcs import GcsStore
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ObjectInfo
from kinetic_payload.testing.memory_store import MemoryStore
from kinetic_payload.threads import Executor, pause
from kinetic_servers.gcs import GcsServer

NAME = "builds/claims/x"


def never() -> bool:
    return False


def test_work_that_is_stopped_releases_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    with GcsServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.create_bucket("builds")
        store, holding = GcsStore("builds"), threading.Event()

        def build() -> None:
            with Claims(store, "me@here").held(NAME, done=never, waiting=print):
                holding.set()
                pause(60)

        executor = Executor(2)
        executor.submit(build)
        assert holding.wait(10)
        executor.stop(KeyboardInterrupt())

        assert store.stat(NAME) is None


class Unreliable(MemoryStore):
    """A store that calls *trouble* before it responds to a renewal or a release."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        super().__init__()
        self.trouble = trouble

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        written = super().write(name, data, if_generation=if_generation)
        if if_generation:
            self.trouble("renewal")
        return written

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        self.trouble("release")
        return super().delete(name, if_generation=if_generation)


@pytest.mark.parametrize("lost", [False, True])
def test_a_claim_is_renewed_while_it_is_held_even_if_responses_are_lost(lost: bool) -> None:
    renewals: list[str] = []

    def trouble(operation: str) -> None:
        if operation == "renewal":
            renewals.append(operation)
            if lost:
                raise StoreUnavailableError("The response was lost.")

    store, waited = Unreliable(trouble), list[str]()
    with Claims(store, "me@here", expiry=0.4).held(NAME, done=never, waiting=print):
        other = Claims(store, "you@here", expiry=0.4, pause=lambda _: threading.Event().wait(0.05))
        # Six renewals take longer than the expiry.
        with other.held(NAME, done=lambda: len(renewals) > 6, waiting=waited.append) as mine:
            assert not mine

    assert waited == ["me@here"]
    assert store.names() == []


def test_a_bucket_that_is_down_delays_neither_renewals_nor_the_end_for_long() -> None:
    limits: list[float] = []

    def down(_: str) -> None:
        raise StoreUnavailableError("It is down.")

    class Limited(Unreliable):
        def limited(self, limit: OutageLimit) -> Self:
            limits.append(limit.seconds)
            return self

    store = Limited(down)
    with Claims(store, "me@here").held(NAME, done=never, waiting=print):
        pass

    assert limits == [5.0]
    assert store.names() == [NAME]


@pytest.mark.parametrize(
    ("ahead", "waits"), [(61.0, False), (-3600.0, True)], ids=["old", "from a clock that is ahead"]
)
def test_a_claim_of_a_killed_process_expires(ahead: float, waits: bool) -> None:
    class Shifted(MemoryStore):
        def now(self) -> float:
            return super().now() + ahead

    store, now = Shifted(), [0.0]
    store.write(NAME, b'{"who": "me@gone"}')

    def pause(seconds: float) -> None:
        now[0] += seconds

    claims, waited = Claims(store, "you@here", pause=pause, clock=lambda: now[0]), list[str]()
    with claims.held(NAME, done=never, waiting=waited.append) as mine:
        assert mine

    assert (60 < now[0] < 63, waited) == ((True, ["me@gone"]) if waits else (False, []))
    assert NAME not in store.names()
