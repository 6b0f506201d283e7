"""Buckets to test against: our strict server, and one of other authors."""

from __future__ import annotations

import importlib
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
from second_gcs import second_server

from kinetic.backends.backend import Launch, Observation
from kinetic.home.liveness import wait_for_death
from kinetic.home.paths import Home
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.services import Services
from kinetic.settings.keys import KeyFile
from kinetic.settings.settings import Settings
from kinetic.submit.options import check_options
from kinetic.submit.request import request_of
from kinetic.submit.submit import submit
from kinetic.testing import eventually
from kinetic_payload.calls.call import CallHeader
from kinetic_payload.calls.unpickle import python_version
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.gcs import GcsStore, RetryPolicy, Service
from kinetic_payload.stores.gcs import connection as connections
from kinetic_payload.testing import MemoryStore
from kinetic_runner.bundle import bundle_for
from kinetic_servers.fakes import FakeBackend
from kinetic_servers.gcs import GcsServer


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
    """Close this process's connections to buckets after each test.

    A process keeps its connection to each service. Here each test has a service of its own, so the process would
    reach the 1,024 descriptors that `select` supports.
    """
    yield
    connections._connections.clear()


@pytest.fixture
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """Return a running strict server with one empty bucket `bucket`."""
    with GcsServer(folder=tmp_path_factory.mktemp("gcs")) as server:
        server.create_bucket("bucket")
        yield server


@pytest.fixture
def gcs_client(gcs: GcsServer) -> Iterator[Any]:
    """Return a real client of it."""
    client = client_of(gcs.endpoint)
    yield client
    client.close()


QUICK = RetryPolicy(limit=100, first=0.01, longest=0.05)


def open_it(
    gcs: GcsServer, retry: RetryPolicy = QUICK, *, below: str = "", **more: Any
) -> GcsStore:
    """Return a store in the strict server's bucket."""
    service = Service(gcs.endpoint, anonymous=True)
    return GcsStore(f"bucket{below}", service=service, retry=retry, **more)


@pytest.fixture
def store(gcs: GcsServer) -> GcsStore:
    """Return the bucket of the strict server."""
    return open_it(gcs)


@pytest.fixture
def second_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the endpoint of the second server, with one empty bucket `bucket`."""
    with second_server(tmp_path_factory.mktemp("second-gcs")) as endpoint:
        yield endpoint


@pytest.fixture(params=["strict", "second"])
def either_gcs(request: pytest.FixtureRequest) -> str:
    """Return the endpoint of each of the two servers in turn, with a bucket `bucket`."""
    if request.param == "second":
        endpoint: str = request.getfixturevalue("second_gcs")
        return endpoint
    server: GcsServer = request.getfixturevalue("gcs")
    return server.endpoint


def client_of(endpoint: str) -> Any:
    """Return a real client that comes without credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": endpoint}
    return storage.Client("test-project", AnonymousCredentials(), client_options=options)


class Desk:
    """A user's project, and the homes from which jobs over a bucket are submitted and found."""

    def __init__(
        self,
        folder: Path,
        server: GcsServer,
        monkeypatch: pytest.MonkeyPatch,
        warm: Callable[[Path], Path],
    ) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.server = server
        self.store = "gs://bucket/team"
        self._monkeypatch = monkeypatch
        self._warm = warm
        self._package = f"users_{abs(hash(folder)):x}"
        self.write("pyproject.toml", "[project]\nname = 'users-project'\nversion = '1'\n")
        self.write(f"{self._package}/__init__.py", "")
        monkeypatch.syspath_prepend(self.project)
        monkeypatch.chdir(self.project)
        self.set(**server.environment, KINETIC_BACKEND="local", KINETIC_STORE=self.store)
        self.sit("here")

    def set(self, **environment: str) -> None:
        """Set variables of this process, and of the jobs that it starts."""
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)

    def sit(self, home: str) -> Path:
        """Use another `KINETIC_HOME` from now on, as on another machine; return it."""
        found = self._warm(self.folder / home)
        self.set(KINETIC_HOME=str(found))
        return found

    def share_key(self, home: str) -> None:
        """Use another home from now on, which has the key of the first."""
        shutil.copy(KeyFile(self.folder / "here").path, KeyFile(self.sit(home)).path)

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def module(self, name: str, text: str) -> ModuleType:
        """Write a module of the project and import it."""
        self.write(f"{self._package}/{name}.py", text)
        importlib.invalidate_caches()
        return importlib.import_module(f"{self._package}.{name}")

    def names(self, store: str = "team/") -> list[str]:
        """Return the names of the store's objects, in order."""
        return [name.removeprefix(store) for name in self.server.names("bucket", store)]

    def of_jobs(self, store: str = "team/") -> list[str]:
        """Return the names of objects that belong to one job only, without those that a clean-up leaves."""
        shared = ("contexts/", "data/", "data-markers/", "logs/", "outputs/")
        return [name for name in self.names(store) if not name.startswith(shared)]

    def clear(self) -> None:
        """Forget modules of the project."""
        for name in [name for name in sys.modules if name.partition(".")[0] == self._package]:
            del sys.modules[name]


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a runner's bundle."""
    return bundle_for(tmp_path_factory.mktemp("bundles"))


def call_header(function: str, module: str) -> CallHeader:
    """Return the header of a call from an interactive session without a project."""
    return CallHeader(
        python=python_version(), cloudpickle=cloudpickle.__version__, kinetic="0.1.0",
        function=function, module=module, context_digest=None, paths=(), cwd="", main=None,
        main_kind="interactive",
    )  # fmt: skip


def submit_to(services: Services, folder: Path, function: Any, *args: Any) -> JobHandle:
    """Submit a call on one CPU from *folder* with these *services*, not with those of the settings."""
    settings = Settings.from_environment()
    options = check_options(accelerator="cpu")
    request = request_of(options, function, settings, environ={}, cwd=folder)
    return submit(request, function, args, {}, services=services)


def ended(handle: JobHandle) -> JobHandle:
    """Wait until a job of this home has ended, and its supervisor, which deletes objects at the end."""
    folder = Home(str(Settings.from_environment().home.value)).job(handle.job_id)
    eventually(lambda: wait_for_death(folder, 1))
    return handle


class RecordingBackend(FakeBackend):
    """A backend that records which jobs were started, and runs none."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.started: list[JobRecord] = []

    def start(self, launch: Launch) -> None:
        self.started.append(launch.record)

    def stop(self, record: JobRecord, **_: object) -> None:
        if record in self.started:
            self.started.remove(record)

    def observe(self, record: JobRecord) -> Observation:
        return Observation(JobStatus.RUNNING)


@pytest.fixture
def desk(
    tmp_path: Path,
    gcs: GcsServer,
    monkeypatch: pytest.MonkeyPatch,
    warm: Callable[[Path], Path],
    end_processes_below: Callable[[Path], object],
) -> Iterator[Desk]:
    """Return a desk whose jobs are in the strict server's bucket."""
    made = Desk(tmp_path, gcs, monkeypatch, warm)
    yield made
    for thread in threading.enumerate():
        if thread.name == "kinetic-clean-up":  # It needs the server.
            thread.join()
    made.clear()
    end_processes_below(tmp_path)
