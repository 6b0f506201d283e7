"""Debian's registry, and docker as the judge of what the client wrote and of the logins that it reads."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from registry_contract import RegistryContract

from kinetic_images.registry.registry import Registry
from kinetic_servers.registry import Access, RegistryServer, User
from kinetic_servers.registry.images import push_image


class TestDockerRegistry(RegistryContract):
    @pytest.fixture(autouse=True)
    def _server(self, docker_registry: str) -> None:
        self.address = docker_registry

    def host(self) -> str:
        return self.address


@pytest.mark.parametrize("docker", [False, True])
def test_docker_pulls_what_the_client_pushed(
    engine: Any, docker_registry: str, docker: bool
) -> None:
    image = f"{docker_registry}/kn/pulled-{docker}".lower()
    digest = push_image(Registry(environ={}).repository(image), "1", docker=docker)

    engine.run("pull", f"{image}@{digest}")
    container = engine.run("create", f"{image}@{digest}", "/none").stdout.decode().strip()
    copied = engine.run("cp", f"{container}:/hello.txt", "-").stdout
    engine.run("rm", container)
    with tarfile.open(fileobj=io.BytesIO(copied)) as archive:
        member = archive.extractfile("hello.txt")
        assert member is not None
        assert member.read() == b"amd64"


def test_docker_and_the_client_share_a_login(engine: Any) -> None:
    with RegistryServer(access=Access({"me": User(password="secret")})) as server:
        server.add_image("kn/private", "1")
        login = ("login", "-u", "me", "--password-stdin", server.host)
        assert engine.run(*login, check=False, given=b"wrong").returncode

        engine.run(*login, given=b"secret")
        repository = Registry(environ=engine.environ).repository(f"{server.host}/kn/private")
        assert repository.digest("1")
