"""Two clusters that are used from many threads at once: no request reaches the wrong one."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect, connect_to_gke

REQUESTS = 1000


@pytest.fixture
def clusters(
    bed: Any, second: dict[str, str], namespace: str, gke: Any, tmp_path: Path
) -> dict[str, Callable[[], ApiServer]]:
    """By name, what connects to each cluster anew: alternately by a context and by its name on GKE."""
    merged: dict[str, Any] = {"kind": "Config", "contexts": [], "clusters": [], "users": []}
    merged["current-context"] = "first"
    gke.identity.token = "kube-bed-admin"
    for name, environment in (("first", bed.environment), ("second", second)):
        config = json.loads(Path(environment["KUBECONFIG"]).read_text())
        for kind in ("contexts", "clusters", "users"):
            merged[kind].append({**config[kind][0], "name": name})
        merged["contexts"][-1]["context"] = {"cluster": name, "user": name}
        ca = Path(environment["KUBE_BED_CA"]).read_text()
        gke.add(name, server=environment["KUBE_BED_SERVER"], ca=ca)
    (tmp_path / "config").write_text(json.dumps(merged))

    def by_context(name: str) -> ApiServer:
        return connect(name, namespace=namespace, kubeconfig=str(tmp_path / "config"))

    def by_name(name: str) -> ApiServer:
        place = ("test-project", "us-central1-a", name)
        return connect_to_gke(*place, namespace=namespace, endpoint=gke.endpoint)

    def connector(name: str) -> Callable[[], ApiServer]:
        ways = iter([by_context, by_name] * REQUESTS)
        return lambda: next(ways)(name)

    return {name: connector(name) for name in ("first", "second")}


def test_no_request_of_a_thousand_interleaved_ones_reaches_the_other_cluster(
    clusters: dict[str, Callable[[], ApiServer]], namespace: str
) -> None:
    names = list(clusters)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    clusters["second"]().create(space)
    for name in names:
        clusters[name]().create(a_map("which", name))
    held = {name: clusters[name]() for name in names}

    def ask(number: int) -> str:
        name = names[number % 2]
        # Some threads keep their cluster, others connect for each request.
        cluster = held[name] if number % 3 else clusters[name]()
        if number % 10 < 2:
            cluster.create(a_map(f"made-{number}", name))
        found = cluster.get("ConfigMap", "which")
        assert found is not None
        return "" if found["data"]["cluster"] == name else f"{number}: {found['data']}"

    with ThreadPoolExecutor(max_workers=16) as threads:
        misdirected = [each for each in threads.map(ask, range(REQUESTS)) if each]

    assert misdirected == []
    for name in names:
        made = held[name].list("ConfigMap", labels="test=two-clusters")
        assert {each["data"]["cluster"] for each in made} == {name}
        assert len(made) == REQUESTS // 10 + 1


def a_map(name: str, cluster: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"test": "two-clusters"}}
    data = {"cluster": cluster}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
