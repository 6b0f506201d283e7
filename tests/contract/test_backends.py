from collections.abc import Iterator
from pathlib import Path

import pytest

from kinetic.backends.backend import Backend
from kinetic.backends.local import LocalBackend
from kinetic.testing import BackendContract
from kinetic_payload.store import Location, Store
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder import FolderStore
from kinetic_payload.testing.gcs import GcsServer


class TestLocalBackend(BackendContract):
    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = FolderStore(folder / "home" / "store")
        return LocalBackend(folder / "home", store), store


class TestLocalBackendOverABucket(BackendContract):
    @pytest.fixture(autouse=True)
    def bucket(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with GcsServer() as server:
            server.create_bucket("jobs")
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield

    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = open_store(Location("gs", "jobs/prefix"))
        # Nobody else keeps jobs here, so one that is not here never started: also by a clock that is
        # a second behind, for a bucket's is known to about one.
        return LocalBackend(folder / "home", store, starting=-5.0), store
