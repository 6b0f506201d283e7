from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from eager import eager

from kinetic_images.errors import (
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
    RegistryUnavailableError,
)
from kinetic_images.registry.oci import digest_of
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_payload.http.retry import RetryPolicy
from kinetic_servers.registry import Access, RegistryServer, User


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 401}, RegistryLoginError),
        ({"status": 403, "code": "DENIED"}, RegistryPermissionError),
        ({"status": 429, "code": "TOOMANYREQUESTS"}, RegistryUnavailableError),
        ({"status": 500}, RegistryUnavailableError),
        ({"status": 503}, RegistryUnavailableError),
        ({"status": 302}, RegistryError),
        ({"status": 418}, RegistryError),
        ({"reset": "after"}, RegistryUnavailableError),
        ({"held": True}, RegistryUnavailableError),
    ],
)
def test_no_failure_is_taken_for_a_missing_image(
    server: RegistryServer,
    environ: Mapping[str, str],
    fault: dict[str, Any],
    error: type[Exception],
) -> None:
    server.add_image("kn/image", "1")
    server.faults.add(times=None, **fault)
    policy = RetryPolicy(limit=0.5, first=0.01, longest=0.1)
    repository = Registry(environ=environ, policy=policy).repository(f"{server.host}/kn/image")
    blob = digest_of(b"")

    for ask in (lambda: repository.digest("1"), lambda: repository.has_blob(blob)):
        with pytest.raises(RegistryError) as caught:
            ask()
        assert type(caught.value) is error
        assert f"{server.host}/kn/image" in caught.value.message
        assert caught.value.hint or error is RegistryError


def test_a_pause_that_a_registry_asks_for_is_made_within_the_limit(
    server: RegistryServer, environ: Mapping[str, str]
) -> None:
    policy = eager()
    repository = Registry(environ=environ, policy=policy).repository(f"{server.host}/kn/image")
    digest = server.add_image("kn/image", "1")
    server.faults.add(status=429, retry_after="7")
    assert repository.digest("1") == digest
    assert policy.clock() == 7

    server.faults.add(status=429, retry_after="3600", times=None)
    with pytest.raises(RegistryUnavailableError, match="limits the number of requests"):
        repository.digest("1")


def test_readers_of_blobs_follow_a_redirect_without_their_credentials(
    registry: Registry, log_in: Callable[..., None]
) -> None:
    access = Access({"me": User(password="secret")})
    with RegistryServer(access=access, redirect_blobs=True) as server:
        log_in(server.host)
        blob = server.storage.add_blob("kn/image", b"content")
        repository = registry.repository(f"{server.host}/kn/image")

        assert repository.blob(blob) == b"content"
        with repository.open_blob(blob, len(b"content")) as file:
            assert file.read() == b"content"
        redirected = server.requests.matching(path="/_blobs/*")
        assert [each.headers["authorization"] for each in redirected] == ["", ""]
        assert all(each.headers["host"].startswith("localhost:") for each in redirected)


@pytest.mark.parametrize(
    ("location", "cause"),
    [
        ("http://storage.invalid/x?signature=hunter2", "redirects to http://storage.invalid/x"),
        ("file:///etc/passwd", "not encrypted"),
        ("http://localhost:1/x?signature=hunter2", "localhost, to which it redirects: "),
        ("https://%zz/x?signature=hunter2", "not valid"),
        ("", "more than 10 redirects"),
    ],
)
def test_a_redirect_to_a_place_that_is_not_safe_is_refused(
    server: RegistryServer, repository: Repository, location: str, cause: str
) -> None:
    blob = server.storage.add_blob("kn/image", b"content")
    server.faults.add(method="GET", times=None, status=307, headers={"Location": location})

    with pytest.raises(RegistryError) as caught:
        repository.blob(blob)
    assert cause in caught.value.message
    assert "hunter2" not in str(caught.value)


def test_a_push_is_not_redirected(server: RegistryServer, repository: Repository) -> None:
    target = f"http://localhost:{server.port}/v2/kn/image/manifests/1"
    server.faults.add(method="PUT", status=307, headers={"Location": target})

    with pytest.raises(RegistryError, match="redirects to"):
        repository.put_manifest("1", b"{}", "x/y")
    assert len(server.requests) == 1
