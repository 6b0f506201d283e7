"""A real Kubernetes for these tests, and jobs on it.

`pytest tests/cluster` starts it if it does not run (`.ci/testcloud.py` says where it is found) and lets
it run; the folder `kube` there has `down`. Runs that do not name this folder leave its tests out. With
`KINETIC_TEST_CLUSTER=required`, a missing cluster is a failure.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import HTTPError

from kinetic_k8s.accelerators import parse_accelerator
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access
from kinetic_k8s.manifests import Manifest
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.manifests.pod import PodSpec, Resources

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
sys.path += [str(ROOT / ".ci"), str(HERE)]

from bed import Bed, control_plane, start  # noqa: E402
from encryption import CERTIFICATES, cluster_at, encrypt  # noqa: E402
from locks import locked  # noqa: E402
from pods import small  # noqa: E402
from tiers import REQUIRED, obstacle  # noqa: E402 - what CI asks as well


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave these tests out of runs that do not name them: they start a cluster."""
    named = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in named) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Limit the time of a test without its fixtures, which wait for others; order those that wait for others.

    Those that wait long for pods begin. Beside the one that takes the whole node run those that only need an API
    server. Of these, the ones that take turns on one control plane are spread over all: they would be the end.
    """
    items.sort(key=_turn)
    in_turns = [item for item in items if "plane_of_jobset" in _fixtures(item)]
    others = [item for item in items if item not in in_turns]
    step = len(items) // (len(in_turns) + 1)
    for number, item in enumerate(in_turns):
        others.insert(number * step, item)
    items[:] = others
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test that is skipped fail where these tests are required: nothing else would tell that it did not run."""
    report = yield
    if report.skipped and _required() and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"It was skipped: {report.longrepr}"
    return report


def _required() -> bool:
    return os.environ.get(REQUIRED["cluster"]) == "required"  # noqa: TID251 - these tests' own


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def _turn(item: pytest.Item) -> int:
    fixtures = _fixtures(item)
    turns = (
        "slice_of_two",
        "ada",
        "a_cluster",
        "faults",
        "project",
        "look",
    )
    if "alone_on_node" in fixtures:
        return len(turns) + 1
    if "bed" not in fixtures:
        return len(turns) + 2
    return next((n for n, name in enumerate(turns) if name in fixtures), len(turns))


@pytest.fixture(scope="session")
def with_bytecode() -> bool:
    return False


@pytest.fixture(autouse=True)
def shared_node(bed: Bed) -> Iterator[ExitStack]:
    """Share the node with tests of other processes, until this is closed."""
    with ExitStack() as shared:
        shared.enter_context(locked(bed.folder, "node", shared=True))
        yield shared


@pytest.fixture
def alone_on_node(bed: Bed, shared_node: ExitStack) -> Callable[[], AbstractContextManager[None]]:
    """Return what waits until no other process runs a test on the node, to be alone there in its block."""

    @contextmanager
    def alone() -> Iterator[None]:
        shared_node.close()
        with locked(bed.folder, "node"):
            yield
        shared_node.enter_context(locked(bed.folder, "node", shared=True))

    return alone


@pytest.fixture(scope="session")
def plane_of_clusters() -> Iterator[Bed]:
    """A cluster without a node, which tests that make clusters share."""
    yield from _plane("clusters")


@pytest.fixture(scope="session")
def plane_of_jobset() -> Iterator[Bed]:
    """A cluster without a node, in which JobSet is installed and removed."""
    yield from _plane("jobset")


def _plane(name: str) -> Iterator[Bed]:
    if (why := obstacle()) is not None:
        pytest.skip(why)
    with control_plane(name) as bed:
        yield bed


@pytest.fixture
def drivers(bed: Bed) -> Iterator[None]:
    """Hold the drivers that are announced to the cluster."""
    with locked(bed.folder, "drivers"):
        yield


@pytest.fixture
def slice_of_two(bed: Bed) -> Iterator[str]:
    """An accelerator with two hosts."""
    with bed.new_slice(2) as name:
        yield name


@pytest.fixture
def priority(bed: Bed) -> Iterator[str]:
    """A priority of this test's own."""
    with bed.new_priority() as name:
        yield name


@pytest.fixture(scope="session")
def bed() -> Bed:
    """The running test bed; several processes may ask for it at once."""
    if (why := obstacle()) is not None:
        pytest.fail(why) if _required() else pytest.skip(why)
    return start()


@pytest.fixture(scope="session")
def namespace(bed: Bed) -> Iterator[str]:
    """A namespace of this process's own."""
    with bed.new_namespace() as name:
        yield name


@pytest.fixture(scope="session")
def cluster(bed: Bed, namespace: str) -> ApiServer:
    """That namespace, as its administrator."""
    return ApiServer(bed.access(namespace))


@pytest.fixture(scope="session")
def a_job() -> Callable[..., JobSpec]:
    """Return what describes a job that runs a Python program; its id and name are its own."""

    def make(program: str, *, retries: int = 0, **pod: Any) -> JobSpec:
        suffix = secrets.token_hex(4)[:7]
        values: dict[str, Any] = {
            "job_id": f"cpu-test-20261122-101500-{suffix}",
            "accelerator": parse_accelerator("cpu"),
            "image": "kinetic.test/python:3.11",
            "command": ("python3", "-u", "-c", program),
            "resources": Resources(memory="64Mi"),
            "overrides": small(),
        }
        return JobSpec(name=f"kn-test-{suffix}", pod=PodSpec(**{**values, **pod}), retries=retries)

    return make


@dataclass(frozen=True)
class Look:
    """What a test sees of a job independently of our code."""

    bed: Bed
    namespace: str

    def pods(self, spec: JobSpec) -> list[Manifest]:
        """Return the pods of a job."""
        return self.bed.objects("pod", self.namespace, of_job(spec.pod.job_id))

    def wait(self, spec: JobSpec, condition: str) -> None:
        """Wait for a condition of the Job, such as `Complete`."""
        self.bed.until(self.bed.path_of("job", self.namespace, spec.name), condition)

    def evict(self, pod: str, *, grace: int | None = None) -> None:
        """Evict a pod, as a preemption would; *grace*: the seconds that it gets to end, if not its own."""
        self.bed.evict(self.namespace, pod, grace=grace)


@dataclass(frozen=True)
class Fault:
    """What happens to a request."""

    status: int | None = None
    """Respond with it, and pass nothing on. None: pass it on, and lose the response."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Relay(ThreadingHTTPServer):
    """Passes requests on to the API server, and makes the faults that a test asks for."""

    daemon_threads = True

    def __init__(self, bed: Bed) -> None:
        super().__init__(("127.0.0.1", 0), _RelayHandler)
        self.bed = bed
        self.server_url = bed.environment["KUBE_BED_SERVER"]
        self.upstream = urllib3.PoolManager(ca_certs=bed.environment["KUBE_BED_CA"], maxsize=20)
        self.url = encrypt(self)
        self.requests: list[str] = []
        """Method and path of each, with its query."""
        self.faults: list[tuple[str, Fault]] = []
        self.stream_seconds: float | None = None
        """After how many seconds each watch and each followed log is cut off; None: none is."""
        self.hidden: set[str] = set()
        """Groups of the API that are not served here."""
        self.namespaces: dict[str, str] = {}
        """In place of which namespace another one is shown."""
        self.change: Callable[[Any], None] | None = None
        """Changes the objects that are created."""
        self.hold: tuple[str, str] | None = None
        """Method and last part of the path of requests that are passed on, and whose response never comes."""
        self.held = threading.Event()
        self.released = threading.Event()
        self.open: set[socket.socket] = set()
        self.lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """Say nothing: connections are cut."""

    def fail(
        self,
        on: str,
        status: int,
        message: str | bytes,
        *,
        reason: str = "",
        times: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Respond to the next requests whose method and path contain *on* with this status."""
        if isinstance(message, str):
            told = {"kind": "Status", "code": status, "message": message, "reason": reason}
            message = json.dumps(told).encode()
        with self.lock:
            self.faults += [(on, Fault(status, message, headers or {}))] * times

    def lose(self, on: str) -> None:
        """Pass the next such request on, and lose the response."""
        with self.lock:
            self.faults.append((on, Fault()))

    def take(self, request: str) -> Fault | None:
        """Note a request; return the fault that it is to meet."""
        with self.lock:
            self.requests.append(request)
            for each in self.faults:
                if each[0] in request:
                    self.faults.remove(each)
                    return each[1]
        return None

    def kubeconfig(self, folder: Path, **user: Any) -> str:
        """Write a kubeconfig whose context has the name of the real one, and leads here; *user* replaces its user."""
        config = json.loads(Path(self.bed.kubeconfig).read_text())
        config["clusters"][0]["cluster"] = cluster_at(self.url)
        if user:
            config["users"][0]["user"] = user
        (folder / "kubeconfig").write_text(json.dumps(config))
        return str(folder / "kubeconfig")

    def cut(self) -> None:
        """Cut all connections."""
        with self.lock:
            for connection in self.open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _RelayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Relay

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.open.add(self.connection)

    def finish(self) -> None:
        with self.server.lock:
            self.server.open.discard(self.connection)
        super().finish()

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.take(f"{self.command} {self.path}")
        if fault is not None and fault.status is not None:
            self.send_response(fault.status)
            self.send_header("Content-Length", str(len(fault.body)))
            for name, value in fault.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(fault.body)
            return
        path, created = self.path, self.server.change is not None and self.command == "POST"
        for shown, real in self.server.namespaces.items():
            path = path.replace(f"/namespaces/{shown}/", f"/namespaces/{real}/")
        if self.server.hidden.intersection(path.split("/")):
            self.send_error(404)
            return
        if created and body:
            changed = json.loads(body)
            self.server.change(changed)
            body = json.dumps(changed).encode()
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        response = self.server.upstream.request(
            self.command,
            f"{self.server.server_url}{path}",
            body=body or None,
            headers=headers,
            preload_content=False,
        )
        if fault is not None:
            response.drain_conn()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        where, _, query = path.partition("?")
        held = (self.command, where.rpartition("/")[2]) == self.server.hold
        if held and "dryRun" not in query:
            self.server.held.set()
            self.server.released.wait(300)
            self.close_connection = True
            return
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        streams = "watch=true" in self.path or "follow=true" in self.path
        if streams and self.server.stream_seconds is not None:
            self.close_connection = True
            threading.Timer(self.server.stream_seconds, self.cut, [response]).start()
        with suppress(OSError, HTTPError):  # One side has gone.
            for data in self.body(response):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        response.close()

    def cut(self, response: urllib3.BaseHTTPResponse) -> None:
        with suppress(OSError, ValueError, RuntimeError):  # One side has gone.
            self.connection.shutdown(socket.SHUT_RDWR)
            response.shutdown()

    def body(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        if self.path == "/apis":
            found = json.loads(response.read())
            served = [one for one in found["groups"] if one["name"] not in self.server.hidden]
            yield json.dumps({**found, "groups": served}).encode()
        while data := response.read1(65536):
            yield data

    do_GET = do_POST = do_PATCH = do_DELETE = relay

    def log_message(self, *_: object) -> None:
        pass


_HOP = ("host", "connection", "content-length", "transfer-encoding", "date", "server")


@pytest.fixture
def relay(bed: Bed) -> Iterator[Relay]:
    """A relay to the API server."""
    with Relay(bed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.released.set()
        server.shutdown()
        server.cut()


@pytest.fixture
def relayed_access(bed: Bed, relay: Relay, namespace: str) -> Access:
    """The namespace, reached through the relay, as its administrator."""
    return replace(bed.access(namespace), server=relay.url, ca=CERTIFICATES)


@pytest.fixture
def relayed(relayed_access: Access) -> ApiServer:
    """The same, without pauses before a repetition."""
    return ApiServer(relayed_access, pause=lambda _: None)


@pytest.fixture(scope="session")
def look(bed: Bed, namespace: str) -> Look:
    return Look(bed, namespace)
