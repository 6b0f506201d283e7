from __future__ import annotations

from pathlib import Path

from kinetic.backends.backend import Backend, Launch
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
