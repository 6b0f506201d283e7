"""Requests to a real API server: what they return, and what becomes of its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.errors import (
    ConflictError,
)

Map = Callable[..., dict[str, Any]]


@pytest.fixture
def a_map(request: pytest.FixtureRequest) -> Map:
    """Return what describes a small object with a name of this test's own."""

    def make(name: str = "", **more: Any) -> dict[str, Any]:
        own = f"{request.node.originalname.replace('_', '-')[:50]}{name}"
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": own}, **more}

    return make


def test_an_object_is_created_read_changed_and_deleted(cluster: ApiServer, a_map: Map) -> None:
    created = cluster.create(a_map(data={"a": "1"}))
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]

    assert cluster.get("ConfigMap", name)["data"] == {"a": "1"}
    assert "data" not in cluster.get("ConfigMap", name, brief=True)
    assert cluster.patch("ConfigMap", name, {"data": {"b": "2"}})["data"] == {"a": "1", "b": "2"}
    with pytest.raises(ConflictError):
        cluster.delete("ConfigMap", name, uid="another")
    assert cluster.delete("ConfigMap", name, uid=uid)
    assert cluster.get("ConfigMap", name) is None
    assert cluster.patch("ConfigMap", name, {"data": {}}) is None
    assert not cluster.delete("ConfigMap", name)
