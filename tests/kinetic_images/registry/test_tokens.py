from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_images.errors import RegistryError, RegistryLoginError, RegistryPermissionError
from kinetic_images.registry.registry import Registry
from kinetic_images.registry.repository import Repository
from kinetic_payload.threads import parallel_map
from kinetic_servers.registry import Access, RegistryServer, User
from kinetic_servers.registry.images import push, push_image

PULL = frozenset({"pull"})
LogIn = Callable[..., None]


@pytest.fixture
def access() -> Access:
    return Access(
        {
            "me": User(password="secret"),
            "reader": User(password="read", grants={"*": PULL}),
            "": User(grants={"public/*": PULL}),
        }
    )


@pytest.fixture
def server(access: Access) -> Iterator[RegistryServer]:
    with RegistryServer(access=access) as running:
        running.add_image("kn/image", "1")
        running.add_image("public/image", "1")
        yield running


def test_a_public_image_is_read_without_a_login(server: RegistryServer, registry: Registry) -> None:
    repository = registry.repository(f"{server.host}/public/image")

    assert repository.digest("1")
    assert repository.image("1", "amd64").config.architecture == "amd64"
    assert server.requests.count(path="/token") == 1


def test_a_token_is_requested_once_for_all_requests_and_threads(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn
) -> None:
    log_in(server.host)

    found = parallel_map(lambda _: repository.digest("1"), range(20), threads=5)
    assert len(set(found)) == 1
    assert access.issued == 1
    push_image(repository, "2")
    assert access.issued == 2
    assert {each.user for each in server.requests.matching(method="PUT")} == {"me"}


def test_a_token_that_expired_or_was_revoked_is_replaced(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn
) -> None:
    log_in(server.host)
    access.seconds = 1
    assert repository.digest("1")
    access.seconds = 300
    threading.Event().wait(1.1)
    assert repository.digest("1")
    assert server.requests.count(status=401) == 2  # Both were requests without a token.
    access.revoke()
    assert repository.digest("1")

    issued = access.issued
    assert repository.digest("1")
    assert access.issued == issued


@pytest.mark.parametrize("basic", [False, True])
def test_a_wrong_password_is_reported_once_and_never_shown(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn, basic: bool
) -> None:
    access.basic = basic
    log_in(server.host, password="hunter2")

    with pytest.raises(RegistryLoginError) as caught:
        repository.digest("1")
    assert "config.json" in caught.value.message
    assert f"docker login {server.host}" in (caught.value.hint or "")
    assert "hunter2" not in str(caught.value)
    assert len(server.requests) <= 2


@pytest.mark.parametrize("basic", [False, True])
def test_a_login_that_was_made_after_a_failure_is_used(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn, basic: bool
) -> None:
    access.basic = basic
    with pytest.raises(RegistryLoginError, match="requires a login, and there is none"):
        repository.digest("1")
    log_in(server.host)
    assert repository.digest("1")

    access.users["me"] = User(password="new")
    access.revoke()
    log_in(server.host, password="new")
    server.faults.add(path="/token", status=503, times=2)
    assert repository.digest("1")


@pytest.mark.parametrize("basic", [False, True])
def test_a_login_without_the_right_is_a_permission_error(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn, basic: bool
) -> None:
    access.basic = basic
    log_in(server.host, "reader", "read")

    assert repository.digest("1")
    assert repository.digest("1")
    assert server.requests.count(status=401) == 1  # Later requests have the login or the token.
    with pytest.raises(RegistryPermissionError) as caught:
        push(repository, b"content")
    assert f"{server.host}/kn/image" in caught.value.message
    assert "right to push" in caught.value.message


def test_an_identity_token_is_exchanged(
    server: RegistryServer, access: Access, repository: Repository, log_in: LogIn
) -> None:
    access.refresh["identitytoken"] = "me"
    log_in(server.host, identitytoken="identitytoken")

    assert push(repository, b"content")
    assert server.requests.count(method="POST", path="/token") == 1


def test_a_mount_asks_for_the_right_to_read_its_source(
    server: RegistryServer, access: Access, registry: Registry, log_in: LogIn
) -> None:
    access.users["writer"] = User(password="w", grants={"kn/*": frozenset({"pull", "push"})})
    log_in(server.host, "writer", "w")
    blob = server.storage.add_blob("private/base", b"content")
    repository = registry.repository(f"{server.host}/kn/image")
    source = registry.repository(f"{server.host}/kn/base")

    assert not repository.mount(blob, registry.repository(f"{server.host}/private/base"))
    assert push(source, b"content") == blob
    assert repository.mount(blob, source)


@pytest.mark.parametrize("realm", ["http://auth.invalid/token", "", "http://[::1"])
def test_credentials_are_not_sent_to_a_token_service_without_encryption(
    server: RegistryServer, repository: Repository, log_in: LogIn, realm: str
) -> None:
    log_in(server.host)
    challenge = f'Bearer realm="{realm}"'
    server.faults.add(status=401, headers={"WWW-Authenticate": challenge}, times=None)

    with pytest.raises(RegistryError, match="not encrypted"):
        repository.digest("1")
    assert server.requests.count(path="/token") == 0


@pytest.mark.parametrize(
    "page", [b"", b"{}", b"[]", b'{"token": 7}', b'{"token": "a\\nb"}', b"[" * 50_000, b"hunter2"]
)
def test_a_token_service_without_a_token_is_an_error_that_quotes_nothing(
    server: RegistryServer, repository: Repository, log_in: LogIn, page: bytes
) -> None:
    log_in(server.host)
    server.faults.add(path="/token", page=page, times=None)

    with pytest.raises(RegistryError, match="contains no token") as caught:
        repository.digest("1")
    assert "hunter2" not in str(caught.value)


def test_threads_that_wait_for_a_login_ask_one_helper_at_a_time(
    server: RegistryServer,
    registry: Registry,
    environ: dict[str, str],
    tmp_path: Path,
    write_docker_config: Callable[[object], Path],
) -> None:
    log = tmp_path / "log"
    helper = tmp_path / "docker-credential-slow"
    helper.write_text(
        f"#!/bin/sh\necho >> {log}; sleep 0.3\n"
        + 'echo \'{"Username": "me", "Secret": "secret"}\'\n'
    )
    helper.chmod(0o755)
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    write_docker_config({"credsStore": "slow"})
    names = [f"{server.host}/kn/image", f"{server.host}/public/image"]

    parallel_map(lambda name: registry.repository(name).digest("1"), names * 3, threads=6)
    assert log.read_text().count("\n") == 1
