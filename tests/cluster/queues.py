"""Queues of a real Kueue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

VERSION: Final = "kueue.x-k8s.io/v1beta2"
API: Final = f"apis/{VERSION}"


@contextmanager
def queue_for_one_job(
    bed: Any,
    namespace: str,
    name: str,
    *,
    preemption: Mapping[str, str] | None = None,
    priorities: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """Provide a queue for one job of 50m of cpu in *namespace*; it and its parts have the name *name*.

    *priorities* are values of priority classes by the ends of their names.
    """
    bed.run("up", "--kueue")
    resources = [
        {"name": "cpu", "nominalQuota": "80m"},
        {"name": "memory", "nominalQuota": "10Gi"},
    ]
    flavors = [{"name": name, "resources": resources}]
    cluster_queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
        **({"preemption": preemption} if preemption else {}),
    }
    parts: list[tuple[str, str, dict[str, Any]]] = [
        ("ResourceFlavor", name, {"spec": {}}),
        *(
            ("WorkloadPriorityClass", f"{name}-{end}", {"value": value})
            for end, value in (priorities or {}).items()
        ),
        ("ClusterQueue", name, {"spec": cluster_queue}),
        ("LocalQueue", name, {"spec": {"clusterQueue": name}}),
    ]
    paths = {
        "ResourceFlavor": f"{API}/resourceflavors",
        "WorkloadPriorityClass": f"{API}/workloadpriorityclasses",
        "ClusterQueue": f"{API}/clusterqueues",
        "LocalQueue": f"{API}/namespaces/{namespace}/localqueues",
    }
    for kind, each, fields in parts:
        manifest = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": each}, **fields}
        bed.ask("POST", paths[kind], body=manifest)
    yield name
    for kind, each, _ in reversed(parts):
        bed.ask("DELETE", f"{paths[kind]}/{each}")
