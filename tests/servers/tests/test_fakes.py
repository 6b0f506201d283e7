from __future__ import annotations

from pathlib import Path

import pytest

from kinetic.backends.backend import Backend, Launch
from kinetic.errors import SubmitError
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import StoreContract
from kinetic_servers.fakes import FakeServices, FakeStore
from kinetic_servers.launches import a_launch
from kinetic_servers.protocol import BackendProtocol


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
