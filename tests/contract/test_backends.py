from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinetic.backends.backend import Backend, Launch
from kinetic.backends.local.backend import LocalBackend
from kinetic.testing import (
    BackendAttempts,
    BackendBasics,
    BackendContract,
    BackendHosts,
    BackendLife,
    BackendLogs,
    BackendTrust,
    BackendValues,
    RegisteredClient,
)
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Location, Store
from kinetic_servers.launches import a_launch
from kinetic_servers.protocol import BackendProtocol

ON_TWO_HOSTS = {"accelerator": "tpu-v5p-8", "backend": "local-gke"}


class Local:
    @pytest.fixture(autouse=True)
    def at_home(self, home: Path) -> None:
        self.home = home

    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(accelerator="cpu", backend="local")

    @contextmanager
    def refusing_starts(self, client: RegisteredClient) -> Iterator[None]:
        # Where the runner is put once the record is written.
        (self.home / "bundles").touch()
        yield


class TestLocalBackend(Local, BackendContract, BackendHosts):
    several_hosts = ON_TWO_HOSTS
    hosts = 2


class TestLocalBackendOverABucket(
    Local, BackendBasics, BackendLife, BackendLogs, BackendAttempts, BackendTrust
):
    """What the store has a part in; batches over a bucket are in `tests/wire`, and slices in `tests/cluster`."""

    @pytest.fixture(autouse=True)
    def over_a_bucket(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KINETIC_STORE", bucket)


class TestLocalBackendInAnEnvironment(BackendValues):
    """Where the function runs in what its project requires, as in an image."""

    project_files = {**BackendValues.project_files, "requirements.txt": "--no-index\n"}

    @pytest.fixture(autouse=True)
    def at_home(self, home: Path) -> None: ...

    def make_client(self, folder: Path) -> RegisteredClient:
        return RegisteredClient(accelerator="cpu", backend="local", container_image="bundled")


class Protocol(BackendProtocol):
    def make_launch(self, store: Store) -> Launch:
        return a_launch(store, "import time; time.sleep(60)")


class TestProtocolOfLocalBackend(Protocol):
    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = FolderStore(folder / "home" / "store")
        return LocalBackend(folder / "home", store), store


class TestProtocolOfLocalBackendOverABucket(Protocol):
    @pytest.fixture(autouse=True)
    def over_a_bucket(self, bucket: str) -> None: ...

    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = open_store(Location("gs", "jobs/prefix"))
        return LocalBackend(folder / "home", store), store
