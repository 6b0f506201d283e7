"""Ports of pods, reached from this machine through a real API server."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kinetic.testing import eventually
from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connection import Access, Credentials
from kinetic_k8s.cluster.port_forward import PortForward
from kinetic_k8s.errors import (
    ClusterUnreachableError,
    NotAuthenticatedError,
    NotPermittedError,
    ObjectGoneError,
    PortRefusedError,
)
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.reading.attempts import PodView, views

PORT = 7777
SERVER = f"""
import os, socket, threading
def serve(client):
    with client:
        while data := client.recv(65536):
            client.sendall(data)
            if data == b"end":
                return
        print("left", flush=True)
listener = socket.create_server(("127.0.0.1", {PORT}))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


@contextmanager
def forwarding(cluster: ApiServer, labels: str, port: int = PORT) -> Iterator[Forwarded]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        forwarded = Forwarded(listener.getsockname()[1])
        given = (listener, port, forwarded.reports.append)
        serving = threading.Thread(target=PortForward(cluster, labels).serve, args=given)
        serving.start()
        try:
            yield forwarded
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


class Forwarded:
    def __init__(self, port: int) -> None:
        self.port = port
        self.reports: list[str] = []

    def client(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        client.settimeout(60)
        return client

    def ask(self, text: bytes) -> bytes:
        with self.client() as client, suppress(ConnectionResetError):
            client.sendall(text)
            return client.recv(1000)
        return b""


@pytest.fixture(scope="module")
def served(a_job: Callable[..., JobSpec], cluster: ApiServer, look: Any) -> Iterator[JobSpec]:
    """A job that echoes what it gets on its loopback interface."""
    spec = a_job(SERVER)
    cluster.create(spec.manifest())
    (pod,) = eventually(lambda: [pod for pod in pods_of(cluster, spec) if pod.started], every=0.2)
    eventually(lambda: printed(cluster, pod, "ready"), every=0.2)
    yield spec
    cluster.delete("Job", spec.name)


def printed(cluster: ApiServer, pod: PodView, text: str) -> int:
    """Return how many lines of the pod's log contain *text*."""
    with cluster.log(pod.name, "kinetic") as lines:
        return sum(text in line for line in lines)


def pods_of(cluster: ApiServer, spec: JobSpec) -> list[PodView]:
    return views(cluster.list("Pod", labels=of_job(spec.pod.job_id)))


def test_many_connections_carry_megabytes_each_way(cluster: ApiServer, served: JobSpec) -> None:
    data = hashlib.shake_128(b"data").digest(3 << 20)
    received: dict[int, bytes] = {}

    def echo(number: int) -> None:
        with forwarded.client() as client:
            threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
            got = b""
            while len(got) < len(data) and (more := client.recv(1 << 16)):
                got += more
            received[number] = got

    with forwarding(cluster, of_job(served.pod.job_id)) as forwarded:
        clients = [threading.Thread(target=echo, args=(number,)) for number in range(4)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()

    assert [received[number] == data for number in range(4)] == [True] * 4
    assert forwarded.reports == []


def test_the_end_of_one_side_ends_the_other(cluster: ApiServer, served: JobSpec) -> None:
    (pod,) = pods_of(cluster, served)
    with forwarding(cluster, of_job(served.pod.job_id)) as forwarded:
        with forwarded.client() as client:
            client.sendall(b"end")
            assert client.recv(100) == b"end"
            assert client.recv(100) == b""
        before = printed(cluster, pod, "left")
        assert forwarded.ask(b"hello") == b"hello"
        eventually(lambda: printed(cluster, pod, "left") > before, every=0.1)


def test_a_port_on_which_nothing_listens_ends_the_connection_and_is_reported(
    cluster: ApiServer, served: JobSpec
) -> None:
    with forwarding(cluster, of_job(served.pod.job_id), port=7778) as forwarded:
        assert forwarded.ask(b"hello") == b""
        assert forwarded.ask(b"hello") == b""

    assert [("port 7778" in text, "nothing listens" in text) for text in forwarded.reports] == [
        (True, True)
    ] * 2


def test_a_refusal_of_the_server_is_an_error_of_its_own_class(
    bed: Any, cluster: ApiServer, namespace: str, served: JobSpec
) -> None:
    (pod,) = pods_of(cluster, served)
    with pytest.raises(ObjectGoneError, match="port 1 of Pod no-such-pod"):
        cluster.open_port("no-such-pod", 1)
    user = ApiServer(bed.access(namespace, token="kube-bed-user"))
    with pytest.raises(NotPermittedError) as denied:
        user.open_port(pod.name, PORT)
    assert "'pods/portforward'" in denied.value.hint
    with pytest.raises(NotAuthenticatedError):
        ApiServer(bed.access(namespace, token="expired")).open_port(pod.name, PORT)
    nowhere = replace(bed.access(namespace), server="https://127.0.0.1:1")
    with pytest.raises(ClusterUnreachableError, match="refused"):
        ApiServer(nowhere).open_port(pod.name, PORT)
    with pytest.raises(ClusterUnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        ApiServer(replace(bed.access(namespace), ca=None)).open_port(pod.name, PORT)
    with pytest.raises(PortRefusedError):
        cluster.open_port(pod.name, 7778).receive()


def test_an_expired_token_is_renewed(bed: Any, namespace: str, served: JobSpec) -> None:
    tokens = iter(["expired", "kube-bed-admin"])
    access: Access = replace(
        bed.access(namespace),
        credentials=lambda: Credentials(headers={"Authorization": f"Bearer {next(tokens)}"}),
    )
    server = ApiServer(access)
    (pod,) = pods_of(ApiServer(bed.access(namespace)), served)

    stream = server.open_port(pod.name, PORT)
    stream.send(b"hello")

    assert stream.receive() == b"hello"
    stream.close()
    assert stream.receive() == b""


class TcpRelay:
    """Passes connections on to the API server, until it is cut; *tunnel*: as a proxy, which is asked for that."""

    def __init__(self, bed: Any, *, tunnel: bool = False) -> None:
        self._target = int(bed.environment["KUBE_BED_SERVER"].rpartition(":")[2])
        self._tunnel = tunnel
        self.port = 0
        self.asked: list[str] = []
        """The first line of each request for a tunnel."""
        self._sockets: list[socket.socket] = []

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self._sockets = [listener]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                if self._tunnel:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += near.recv(1)
                    self.asked.append(head.split(b" HTTP")[0].decode())
                    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)


def test_a_forward_uses_the_proxy_and_the_server_name_of_its_access(
    bed: Any, namespace: str, served: JobSpec
) -> None:
    proxy = TcpRelay(bed, tunnel=True)
    proxy.start()
    access = replace(
        bed.access(namespace),
        server="https://cluster.invalid:6443",
        server_name="kubernetes.default.svc",
        proxy=f"http://127.0.0.1:{proxy.port}",
    )
    with forwarding(ApiServer(access), of_job(served.pod.job_id)) as forwarded:
        assert forwarded.ask(b"hello") == b"hello"
    proxy.cut()

    assert proxy.asked == ["CONNECT cluster.invalid:6443"] * 2


def test_after_an_interruption_of_the_network_the_next_client_is_connected(
    bed: Any, namespace: str, served: JobSpec
) -> None:
    relay = TcpRelay(bed)
    relay.start()
    access = replace(bed.access(namespace), server=f"https://127.0.0.1:{relay.port}")
    cluster = ApiServer(access, limit=1)
    with forwarding(cluster, of_job(served.pod.job_id)) as forwarded:
        with forwarded.client() as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
            relay.cut()
            assert client.recv(100) == b""
        assert forwarded.ask(b"hello") == b""
        relay.start()
        assert forwarded.ask(b"hello") == b"hello"

    assert "refused" in forwarded.reports[-1]
    relay.cut()
