"""docker as the judge: it pulls and pushes through the server of tests, and reads what the client wrote."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from kinetic_images.registry.registry import Registry
from kinetic_servers.registry import Access, RegistryServer, User
from kinetic_servers.registry.images import push_image


def an_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("from-docker.txt")
        member.size = 6
        archive.addfile(member, io.BytesIO(b"docker"))
    return buffer.getvalue()


def content(engine: Any, image: str, path: str) -> bytes:
    """Return a file of an image that the engine has."""
    container = engine.run("create", image, "/none").stdout.decode().strip()
    copied = engine.run("cp", f"{container}:{path}", "-").stdout
    engine.run("rm", container)
    with tarfile.open(fileobj=io.BytesIO(copied)) as archive:
        member = archive.extractfile(archive.getmembers()[0])
        assert member is not None
        return member.read()


@pytest.mark.parametrize("docker", [False, True])
@pytest.mark.parametrize("real", [False, True])
def test_docker_pulls_what_the_client_pushed(
    engine: Any, docker_registry: str, docker: bool, real: bool
) -> None:
    with RegistryServer() as server:
        host = docker_registry if real else server.host
        image = f"{host}/kn/pulled-{docker}-{real}".lower()
        digest = push_image(Registry(environ={}).repository(image), "1", docker=docker)

        engine.run("pull", f"{image}:1")
        engine.run("pull", f"{image}@{digest}")
        assert content(engine, f"{image}@{digest}", "/hello.txt") == b"amd64"


@pytest.mark.parametrize("options", [{}, {"absolute": False}, {"mounts": False}])
def test_the_client_reads_what_docker_pushed(engine: Any, options: dict[str, bool]) -> None:
    with RegistryServer(**options) as server:  # type: ignore[arg-type]
        image = f"{server.host}/kn/pushed"
        engine.run("import", "-", f"{image}:1", given=an_archive())
        pushed = engine.run("push", f"{image}:1").stdout.decode()

        found = Registry(environ={}).repository(image).image("1", "amd64")
        assert f"digest: {found.digest} " in pushed
        (layer,) = found.manifest.layers
        assert Registry(environ={}).repository(image).blob(layer.digest)
        # Another repository: docker mounts the layer, or sends it again.
        engine.run("tag", f"{image}:1", f"{server.host}/kn/second:1")
        engine.run("push", f"{server.host}/kn/second:1")
        mounted = [each for each in server.requests.matching(status=201) if "mount" in each.query]
        assert bool(mounted) is options.get("mounts", True)


def test_docker_and_the_client_share_a_login(engine: Any) -> None:
    access = Access({"me": User(password="secret")})
    with RegistryServer(access=access) as server:
        image = f"{server.host}/kn/private"
        engine.run("import", "-", f"{image}:1", given=an_archive())
        assert b"denied" in engine.run("push", f"{image}:1", check=False).stderr
        login = ["login", "-u", "me", "--password-stdin", server.host]
        assert engine.run(*login, check=False, given=b"wrong").returncode

        engine.run(*login, given=b"secret")
        engine.run("push", f"{image}:1")
        assert Registry(environ=engine.environ).repository(image).image("1", "amd64").digest
