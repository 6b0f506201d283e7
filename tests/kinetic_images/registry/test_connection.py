from __future__ import annotations

import gzip
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from eager import eager

from kinetic_images.errors import (
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.registry.registry import Registry
from kinetic_payload.http.retry import RetryPolicy
from kinetic_servers.registry import Access, RegistryServer, User
from kinetic_servers.registry.images import push

QUICK = RetryPolicy(limit=1, first=0.01, longest=0.05)
NAME = "us-docker.pkg.dev"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve each connection with *serve*, in a thread; yield host and port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(client,), daemon=True).start()

        def run(client: socket.socket) -> None:
            with client:
                try:
                    serve(client)
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def responding(*parts: bytes, pause: float = 0.0) -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        client.recv(65536)
        for part in parts:
            client.sendall(part)
            time.sleep(pause)  # noqa: TID251

    return serve


OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(10_000_000))


@pytest.mark.parametrize(
    ("serve", "cause"),
    [
        (responding(OK, *[b"X: %d\r\n" % n for n in range(200)], b"\r\n"), "100 headers"),
        (responding(OK, b"X: ", b"x" * 70_000, b"\r\n\r\n"), "header line"),
        (responding(OK, b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB), BOMB), "compressed"),
        (responding(OK, b"Content-Length: 99999999\r\n\r\n", bytes(9_000_000)), "more than"),
    ],
)  # fmt: skip
def test_a_response_that_wastes_memory_is_refused_at_once(
    environ: Mapping[str, str], serve: Callable[[socket.socket], None], cause: str
) -> None:
    with listening(serve) as host, pytest.raises(RegistryError, match=cause) as caught:
        Registry(environ=environ).repository(f"{host}/kn/image").manifest("1")
    assert not isinstance(caught.value, RegistryUnavailableError)


@pytest.mark.parametrize(
    "serve",
    [
        responding(*[bytes([each]) for each in OK * 9], pause=0.1),
        responding(OK, b"Content-Length: 99\r\n\r\n", *[b"x"] * 99, pause=0.1),
        responding(pause=60),
        responding(b"SSH-2.0-OpenSSH\r\n"),
        responding(OK, b"Content-Length: 99\r\n\r\nshort"),
        responding(),
    ],
)
def test_a_server_that_never_finishes_a_response_is_given_up(
    environ: Mapping[str, str], serve: Callable[[socket.socket], None]
) -> None:
    before = time.monotonic()
    with listening(serve) as host, pytest.raises(RegistryUnavailableError):
        Registry(environ=environ, policy=QUICK).repository(f"{host}/kn/image").manifest("1")
    assert time.monotonic() - before < 6


@pytest.mark.parametrize(
    "serve",
    [
        responding(OK, b"Content-Length: 99\r\n\r\n", *[b"x"] * 99, pause=0.1),
        responding(OK, b"Content-Length: 99\r\n\r\nx"),
        responding(b"HTTP/1.1 500 Oh\r\n", b"Content-Length: 99\r\n\r\n", *[b"x"] * 99, pause=0.1),
    ],
    ids=["drips", "breaks after each byte", "drips an error"],
)
def test_a_blob_slower_than_the_least_rate_is_an_error(
    environ: Mapping[str, str], serve: Callable[[socket.socket], None]
) -> None:
    before = time.monotonic()
    with listening(serve) as host:
        repository = Registry(environ=environ, policy=QUICK).repository(f"{host}/kn/image")
        with pytest.raises(RegistryUnavailableError):
            repository.open_blob(f"sha256:{'a' * 64}", 99).read()
    assert time.monotonic() - before < 6


def test_connections_are_kept_and_not_shared_with_a_child_process(
    server: RegistryServer, environ: Mapping[str, str]
) -> None:
    digest = server.add_image("kn/image", "1")
    repository = Registry(environ=environ, policy=eager()).repository(f"{server.host}/kn/image")
    assert repository.digest("1") == digest
    child = os.fork()
    if not child:
        os._exit(0 if repository.digest("1") == digest else 1)
    assert repository.digest("1") == digest

    assert os.waitpid(child, 0)[1] == 0


class Authority:
    """A certificate authority, and a proxy that leads all hosts to one server."""

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme", reason="it needs kinetic-servers")
        made = trustme.CA()
        self.file = folder / "ca.pem"
        made.cert_pem.write_to_path(str(self.file))
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.issue_cert(NAME, "registry.test").configure_cert(self.tls)
        self.tunnels: list[str] = []

    def proxy(self, port: int) -> Callable[[socket.socket], None]:
        def serve(client: socket.socket) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            self.tunnels.append(head.split(b"\r\n")[0].decode())
            client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            with socket.create_connection(("127.0.0.1", port)) as server:
                forward(client, server)

        return serve


def forward(client: socket.socket, server: socket.socket) -> None:
    ends = {client: server, server: client}
    while True:
        for each in select.select([*ends], [], [])[0]:
            data = each.recv(65536)
            if not data:
                return
            ends[each].sendall(data)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@contextmanager
def google_registry(
    authority: Authority, access: Access | None = None
) -> Iterator[tuple[RegistryServer, dict[str, str]]]:
    """A registry that is reached as `us-docker.pkg.dev`, and the environment for that."""
    with (
        RegistryServer(access=access, tls=authority.tls) as server,
        listening(authority.proxy(server.port)) as proxy,
    ):
        yield server, {"https_proxy": f"http://{proxy}", "SSL_CERT_FILE": str(authority.file)}


def test_a_registry_of_googles_gets_the_token_of_the_machine_with_the_first_request(
    authority: Authority, environ: dict[str, str], tmp_path: Path
) -> None:
    # A sibling of this package, which is not there when its tests run alone.
    identity = pytest.importorskip("kinetic_servers.gke.google_identity")

    access = Access({"tester": User(), "reader": User(grants={"*": frozenset({"pull"})})})
    with (
        google_registry(authority, access) as (server, more),
        identity.GoogleIdentity(tmp_path) as google,
    ):
        digest = server.add_image("p/r/image", "1")
        key = {"GOOGLE_APPLICATION_CREDENTIALS": str(google.file)}
        repository = Registry(environ={**environ, **more, **key}, policy=eager()).repository(
            f"{NAME}/p/r/image"
        )
        google.token = "ya29.hunter2"
        with pytest.raises(RegistryLoginError, match="gcloud auth") as caught:
            repository.digest("1")
        assert "hunter2" not in str(caught.value)

        access.direct["ya29.hunter2"] = "tester"
        server.requests.clear()
        assert repository.digest("1") == digest
        assert push(repository, b"content")
        assert server.requests.lines[0].startswith("HEAD /v2/p/r/image/manifests/1 200")
        assert server.requests.count(path="/token") == 0
        assert authority.tunnels[0].startswith(f"CONNECT {NAME}:443 ")

        access.direct["ya29.hunter2"] = "reader"
        with pytest.raises(RegistryPermissionError, match=r"roles/artifactregistry\.writer"):
            push(repository, b"other")


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_the_certificates_that_the_environment_names_are_trusted(
    authority: Authority, environ: dict[str, str], variable: str
) -> None:
    with google_registry(authority) as (server, more):
        digest = server.add_image("kn/image", "1")
        trusted = {**environ, "HTTPS_PROXY": more["https_proxy"], variable: str(authority.file)}
        found = Registry(environ=trusted, policy=eager()).repository("registry.test/kn/image")
        assert found.digest("1") == digest


def test_an_untrusted_certificate_is_reported_at_once(
    authority: Authority, environ: dict[str, str]
) -> None:
    with google_registry(authority) as (_, more):
        proxied = {**environ, "https_proxy": more["https_proxy"]}
        for name, trusted in (("registry.test", {}), ("other.test", more)):
            before = time.monotonic()
            repository = Registry(environ={**proxied, **trusted}).repository(f"{name}/kn/image")
            with pytest.raises(RegistryError, match="certificate is not trusted") as caught:
                repository.digest("1")
            assert "SSL_CERT_FILE" in (caught.value.hint or "")
            assert time.monotonic() - before < 5


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_file_of_certificates_that_cannot_be_read_is_named(
    environ: dict[str, str], tmp_path: Path, content: Any
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    registry = Registry(environ={**environ, "SSL_CERT_FILE": str(file)})

    with pytest.raises(RegistryError, match="SSL_CERT_FILE") as caught:
        registry.repository("registry.test/kn/image").digest("1")
    assert str(file) in caught.value.message
