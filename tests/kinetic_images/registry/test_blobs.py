from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from kinetic_images.errors import (
    ImageNotFoundError,
    InvalidImageError,
    RegistryUnavailableError,
)
from kinetic_images.registry.oci import digest_of
from kinetic_images.registry.repository import Repository
from kinetic_payload.threads import Stopped, stoppable
from kinetic_servers.registry import RegistryServer

DATA = os.urandom(3_000_000)


@pytest.fixture
def digest(server: RegistryServer) -> str:
    return server.storage.add_blob("kn/image", DATA)


@pytest.mark.parametrize("status", [None, 503])
def test_a_broken_connection_is_continued_where_it_broke(
    server: RegistryServer, repository: Repository, digest: str, status: int | None
) -> None:
    server.faults.add(method="GET", times=2, reset="response", at=1_000_000)
    if status:
        server.faults.add(method="GET", status=status)

    with repository.open_blob(digest, len(DATA)) as file:
        assert file.read(10) == DATA[:10]
        assert file.read() == DATA[10:]
        assert file.read() == b""
    assert server.requests.matching(method="GET")[1].headers["range"].startswith("bytes=")


def test_a_server_without_ranges_sends_the_blob_again(
    server: RegistryServer, repository: Repository, digest: str
) -> None:
    server.faults.add(method="GET", reset="response", at=1_000_000)
    server.faults.add(method="GET", status=200, page=DATA)

    with repository.open_blob(digest, len(DATA)) as file:
        assert file.read() == DATA
    assert len(server.requests.matching(method="GET")) == 2


@pytest.mark.parametrize(
    ("fault", "cause"),
    [({"page": b"other"}, None), ({"endless": True}, "more than its 3000000 bytes")],
)
def test_other_or_more_bytes_than_the_descriptor_names_are_refused(
    server: RegistryServer,
    repository: Repository,
    digest: str,
    fault: dict[str, Any],
    cause: str | None,
) -> None:
    server.faults.add(method="GET", **fault)

    with (
        repository.open_blob(digest, len(DATA)) as file,
        pytest.raises(InvalidImageError, match=cause),
    ):
        file.read()


def test_a_blob_that_is_not_there_or_unreachable_is_an_error(
    server: RegistryServer, repository: Repository, digest: str
) -> None:
    with pytest.raises(ImageNotFoundError, match="BLOB_UNKNOWN"):
        repository.open_blob(digest_of(b"absent"), 6)

    server.faults.add(method="GET", reset="response", at=100_000)
    server.faults.add(method="GET", times=None, reset="after")
    with repository.open_blob(digest, len(DATA)) as file, pytest.raises(RegistryUnavailableError):
        file.read()


def test_a_reader_that_is_stopped_ends_before_the_registry_responds(
    server: RegistryServer, repository: Repository, digest: str
) -> None:
    server.faults.add(method="GET", held=True)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()

    with stoppable(stop.is_set), pytest.raises(Stopped):
        repository.open_blob(digest, len(DATA))
