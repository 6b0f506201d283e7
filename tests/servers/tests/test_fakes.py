from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kinetic.backends.backend import Backend, Launch
from kinetic.errors import SubmitError
from kinetic.testing import BackendProtocol
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import StoreContract
from kinetic_servers.fakes import FakeServices, FakeStore
from kinetic_servers.launches import a_launch, job_ids_of


class TestFakeBackend(BackendProtocol):
    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        services = FakeServices.make()
        return services.backend, services.store

    def make_launch(self, store: Store) -> Launch:
        return a_launch(store, "pass")


class TestFakeStore(StoreContract):
    def make_store(self, folder: Path) -> Store:
        return FakeStore()


@pytest.mark.parametrize("missing", ["handle", "payload"])
def test_a_fake_job_without_its_objects_cannot_start(missing: str) -> None:
    services = FakeServices.make()
    launch = a_launch(services.store, "pass")
    services.store.delete(getattr(JobObjects(launch.record.job_id), missing))

    with pytest.raises(SubmitError, match=missing):
        services.backend.start(launch)


@pytest.mark.parametrize("error", [None, ValueError("no")])
def test_a_fake_job_can_be_removed_as_soon_as_its_outcome_is_written(
    error: Exception | None,
) -> None:
    services = FakeServices.make()
    job = services.job()
    services.journal.after("write */outcome.json", lambda: services.backend.loses(job.job_id))

    if error is None:
        services.backend.returns(job.job_id, 42)
    else:
        services.backend.raises(job.job_id, error)

    assert job_ids_of(services.backend) == []


def test_following_a_fake_job_ends_with_it_and_loses_no_line() -> None:
    services = FakeServices.make()
    launch = a_launch(services.store, "pass")
    job_id, lines = launch.record.job_id, []
    services.backend.start(launch)
    services.backend.prints(job_id, "one")

    def end() -> None:
        services.backend.prints(job_id, "two", "three")
        services.backend.returns(job_id, None)

    for line in services.backend.log_lines(launch.record, follow=True):
        lines.append(line.text)
        if line.text == "one":
            threading.Thread(target=end).start()

    assert lines == ["one", "two", "three"]
    assert [x.text for x in services.backend.log_lines(launch.record, tail=1)] == ["three"]


def test_planned_acts_happen_once_and_in_order() -> None:
    services, seen = FakeServices.make(), []
    services.journal.before("write x", lambda: seen.append("first"), lambda: seen.append("second"))
    services.journal.refuse("delete *", ValueError("no"))

    for _ in range(3):
        services.store.write("x", b"")
    with pytest.raises(ValueError, match="no"):
        services.store.delete("x")

    assert seen == ["first", "second"]
    assert services.store.delete("x")
    assert services.journal.entries == ["write x"] * 3 + ["delete x"] * 2
