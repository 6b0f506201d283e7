"""Queues of a real Kueue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


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
    objects: list[tuple[str, str, dict[str, Any]]] = [
        ("ResourceFlavor", name, {"spec": {}}),
        *(
            ("WorkloadPriorityClass", f"{name}-{end}", {"value": value})
            for end, value in (priorities or {}).items()
        ),
        ("ClusterQueue", name, {"spec": cluster_queue}),
        ("LocalQueue", name, {"spec": {"clusterQueue": name}}),
    ]
    for kind, each, fields in objects:
        manifest = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": each},
        }
        bed.kubectl("create", "-n", namespace, "-f", "-", given=json.dumps({**manifest, **fields}))
    yield name
    for kind, each, _ in reversed(objects):
        bed.kubectl(
            "delete", f"{kind.lower()}.kueue.x-k8s.io", each, "-n", namespace, "--wait=false"
        )
