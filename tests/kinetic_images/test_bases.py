"""An image that the user names is looked at before it is used, and pinned to its digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_images import push_image

from kinetic_images.bases import inspect_image
from kinetic_images.registry.registry import Registry
from kinetic_images.targets import Machine
from kinetic_payload.http.retry import RetryPolicy
from kinetic_servers.registry.server import RegistryServer

REGISTRY = Registry(environ={}, google=lambda: None, policy=RetryPolicy(limit=0.5))


@pytest.fixture
def inspect(tmp_path: Path) -> Callable[..., tuple[str, tuple[str, ...]]]:
    def look(uri: str, *, machine: Machine = "x86_64") -> tuple[str, tuple[str, ...]]:
        return inspect_image(uri, python="3.11", machine=machine, registry=REGISTRY, home=tmp_path)

    return look


Inspect = Callable[..., tuple[str, tuple[str, ...]]]


def test_an_image_is_pinned_to_the_digest_that_its_tag_has_now(
    server: RegistryServer, inspect: Inspect
) -> None:
    uri = push_image(server.host, REGISTRY, tag="v1", Env=["PYTHON_VERSION=3.11.9"])
    digest = REGISTRY.repository(uri).digest("v1")
    assert inspect(uri) == (f"{server.host}/base@{digest}", ())
    server.requests.clear()
    assert inspect(uri) == (f"{server.host}/base@{digest}", ())
    assert [request.method for request in server.requests] == ["HEAD"]
    assert inspect(f"{uri}@{digest}")[0] == f"{server.host}/base@{digest}"
    assert len(server.requests) == 1


def test_an_unknown_python_is_noted(server: RegistryServer, inspect: Inspect) -> None:
    (note,) = inspect(push_image(server.host, REGISTRY, tag="v1", Env=[]))[1]
    assert "does not say which Python it has" in note


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_if_the_registry_cannot_be_asked_an_image_is_used_as_named_with_a_warning(
    server: RegistryServer, inspect: Inspect, status: int
) -> None:
    uri = push_image(server.host, REGISTRY, tag="v1")
    server.faults.add(path="/v2/base/*", status=status, times=None)
    found = inspect(uri)
    assert found[0] == uri
    assert "could not be checked from here" in found[1][0]
