from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import pytest
from eager import eager

from kinetic_images.errors import RegistryError, RegistryUnavailableError
from kinetic_images.registry.oci import digest_of
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_payload.threads import Stopped, stoppable
from kinetic_servers.registry import Access, RegistryServer, User
from kinetic_servers.registry.images import push

DATA = os.urandom(1_000_000)
UPLOADS = "/v2/kn/image/blobs/uploads/*"


def test_a_blob_is_one_session_and_one_request(
    server: RegistryServer, repository: Repository
) -> None:
    push(repository, DATA)

    assert [f"{each.method} {each.status}" for each in server.requests] == ["POST 202", "PUT 201"]
    assert "content-range" not in server.requests.matching(method="PUT")[0].headers


def test_an_upload_continues_at_a_relative_address(registry: Registry) -> None:
    with RegistryServer(absolute=False) as server:
        assert push(registry.repository(f"{server.host}/kn/image"), DATA) == digest_of(DATA)


@pytest.mark.parametrize(
    "fault",
    [
        {"reset": "request", "at": 500_000},
        {"reset": "request", "at": 0},
        {"status": 503},
        {"status": 429, "retry_after": "0.1"},
        {"status": 404, "code": "BLOB_UPLOAD_UNKNOWN"},
    ],
)
def test_a_broken_upload_is_sent_again_and_counted_once(
    server: RegistryServer, repository: Repository, fault: dict[str, Any]
) -> None:
    server.faults.add(method="PUT", path=UPLOADS, times=2, **fault)
    advances: list[int] = []

    digest = push(repository, DATA, advances)
    assert repository.blob(digest) == DATA
    assert sum(advances) == len(DATA)
    assert server.requests.count(method="PUT") == 3
    assert server.requests.count(method="POST") == 3
    assert server.storage.uploads == {}


def test_an_upload_whose_response_was_lost_is_not_repeated(
    server: RegistryServer, repository: Repository
) -> None:
    server.faults.add(method="PUT", path=UPLOADS, reset="after")
    advances: list[int] = []

    push(repository, DATA, advances)
    assert server.requests.count(method="PUT") == 1
    assert server.requests.count(method="HEAD", status=200) == 1
    assert sum(advances) == len(DATA)


def test_uploads_that_fail_without_progress_end(
    server: RegistryServer, environ: dict[str, str]
) -> None:
    repository = Registry(environ=environ, policy=eager()).repository(f"{server.host}/kn/image")
    server.faults.add(method="PUT", path=UPLOADS, times=None, reset="request", at=300_000)
    advances = list[int]()

    with pytest.raises(RegistryUnavailableError, match="tried for 60 s"):
        push(repository, DATA, advances)
    assert sum(advances) == 0


def test_a_login_that_expires_in_the_middle_of_an_upload_is_renewed(
    registry: Registry, log_in: Callable[..., None]
) -> None:
    access = Access({"me": User(password="secret")})
    with RegistryServer(access=access) as server:
        log_in(server.host)
        repository = registry.repository(f"{server.host}/kn/image")
        opened: list[int] = []

        def open_content() -> BinaryIO:
            opened.append(1)
            return io.BytesIO(DATA)

        push(repository, b"small")
        session = threading.Event()
        fault = server.faults.add(method="PUT", path=UPLOADS, held=True)
        threading.Thread(
            target=lambda: (session.wait(10), access.revoke(), fault.release())
        ).start()
        threading.Timer(0.3, session.set).start()
        advances: list[int] = []
        repository.upload(digest_of(DATA), len(DATA), open_content, advances.append)

        assert repository.blob(digest_of(DATA)) == DATA
        assert len(opened) == 2
        assert sum(advances) == len(DATA)


@pytest.mark.parametrize(
    ("location", "cause"),
    [
        ("https://evil.invalid/upload?hunter2", "sends the upload to https://evil.invalid/upload,"),
        ("http://localhost:1/x", "sends the upload to"),
        ("http://[::1", "sends the upload to"),
        (None, "named no address"),
    ],
)
def test_credentials_and_content_do_not_follow_to_another_host(
    server: RegistryServer, repository: Repository, location: str | None, cause: str
) -> None:
    server.faults.add(method="POST", headers={"Location": location}, times=None)

    with pytest.raises(RegistryError, match=cause) as caught:
        push(repository, DATA)
    assert "hunter2" not in str(caught.value)


def test_an_error_or_an_early_end_of_the_content_ends_the_upload(repository: Repository) -> None:
    def fail(*_: object) -> Any:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        repository.upload(digest_of(DATA), len(DATA), fail, lambda _: None)
    with pytest.raises(OSError, match="the disk is gone"):
        repository.upload(digest_of(DATA), len(DATA), lambda: io.BytesIO(DATA), fail)
    with pytest.raises(RegistryError, match="ended after 10 of 11 bytes"):
        repository.upload(digest_of(b""), 11, lambda: io.BytesIO(bytes(10)), lambda _: None)


@pytest.mark.parametrize("fault", [{"held": True, "at": 1 << 16}, {"held": True}])
def test_a_stopped_upload_ends_before_the_registry_responds(
    server: RegistryServer, repository: Repository, fault: dict[str, Any]
) -> None:
    server.faults.add(method="PUT", path=UPLOADS, **fault)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()

    with stoppable(stop.is_set), pytest.raises(Stopped):
        push(repository, bytes(20_000_000))


MOVE = """
import hashlib, io, resource, sys
from kinetic_images.registry.registry import Registry

class Zeros(io.RawIOBase):
    left = 60_000_000
    def readable(self): return True
    def readinto(self, buffer):
        size = min(len(buffer), self.left)
        buffer[:size] = bytes(size)
        self.left -= size
        return size

digest = hashlib.sha256()
for _ in range(60):
    digest.update(bytes(1_000_000))
name = f"sha256:{digest.hexdigest()}"
repository = Registry(environ={}).repository(sys.argv[1])
repository.has_blob(name)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
repository.upload(name, Zeros.left, Zeros, lambda _: None)
with repository.open_blob(name, 60_000_000) as file:
    assert sum(map(len, iter(lambda: file.read(1 << 20), b""))) == Zeros.left
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow  # It moves 120 MB.
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, the figure has another unit")
def test_memory_does_not_depend_on_the_size_of_a_blob(server: RegistryServer) -> None:
    command = [sys.executable, "-c", MOVE, f"{server.host}/kn/image"]

    grown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(grown) < 10_000  # KiB
