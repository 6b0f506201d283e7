from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Backend
from kinetic.backends.local.backend import LocalBackend
from kinetic.errors import SubmitError
from kinetic.jobs.services import Services
from kinetic.testing import (
    BackendContract,
    BackendHosts,
    BackendProtocol,
    BackendQueue,
    BackendTrust,
    BackendValues,
    Client,
    RegisteredClient,
    RunningBackend,
    ServicesClient,
)
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Location, Store

ON_TWO_HOSTS = {"accelerator": "tpu-v5p-8", "backend": "local-gke"}


class TestFakeBackend(BackendContract, BackendHosts, BackendQueue):
    several_hosts = ON_TWO_HOSTS
    hosts = 2

    @pytest.fixture(autouse=True)
    def at_home(self, home: Path) -> None: ...

    def make_client(self, folder: Path) -> Client:
        store = FolderStore(folder / "store")
        self.backend = RunningBackend(store, folder / "home", places=2)
        return ServicesClient(Services(store, self.backend), accelerator="cpu", backend="local")

    @contextmanager
    def refusing_starts(self, client: Client) -> Iterator[None]:
        self.backend.journal.refuse("start *", SubmitError("There is no room."))
        yield

    @contextmanager
    def full(self, client: Client) -> Iterator[Mapping[str, Any]]:
        jobs = [client.submit(client.functions.wait, n) for n in range(2)]
        for job in jobs:
            next(job.log_lines(follow=True))
        yield {}
        for job in jobs:
            client.put(job, "go")


class Local(BackendContract, BackendHosts):
    several_hosts = ON_TWO_HOSTS
    hosts = 2

    @pytest.fixture(autouse=True)
    def at_home(self, home: Path) -> None:
        self.home = home

    def make_client(self, folder: Path) -> Client:
        return RegisteredClient(accelerator="cpu", backend="local")

    @contextmanager
    def refusing_starts(self, client: Client) -> Iterator[None]:
        # Where the runner is put once the record is written.
        (self.home / "bundles").touch()
        yield


class TestLocalBackend(Local): ...


class TestLocalBackendOverABucket(Local, BackendTrust):
    @pytest.fixture(autouse=True)
    def over_a_bucket(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KINETIC_STORE", bucket)


class TestLocalBackendInAnEnvironment(BackendValues):
    """Where the function runs in what its project requires, as in an image."""

    project_files = {**BackendValues.project_files, "requirements.txt": "--no-index\n"}

    @pytest.fixture(autouse=True)
    def at_home(self, home: Path) -> None: ...

    def make_client(self, folder: Path) -> Client:
        return RegisteredClient(accelerator="cpu", backend="local", container_image="bundled")


class TestProtocolOfLocalBackend(BackendProtocol):
    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = FolderStore(folder / "home" / "store")
        return LocalBackend(folder / "home", store), store


class TestProtocolOfLocalBackendOverABucket(BackendProtocol):
    @pytest.fixture(autouse=True)
    def over_a_bucket(self, bucket: str) -> None: ...

    def make_backend(self, folder: Path) -> tuple[Backend, Store]:
        store = open_store(Location("gs", "jobs/prefix"))
        # Nobody else keeps jobs here, so one that is not here never started: also by a clock that is
        # a second behind, for a bucket's is known to about one.
        return LocalBackend(folder / "home", store, starting=-5.0), store
