"""The pods of these tests. Projects have a copy of this file.

Each may use the whole node, and asks for little, so that many fit on it. A limit of 400 millicores would
double the time of a job, most of which is the start of Python.
"""

import os
from collections.abc import Mapping
from typing import Any

ON_CORDONED = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
"""The toleration of a node that a test of another process has cordoned."""


def small(
    priority: str = "", *, tolerations: tuple[Mapping[str, Any], ...] | None = None
) -> dict[str, Any]:
    """Return the overrides of such a pod, with a priority if one is given or set, as for the pods of a slice.

    Without a priority they tolerate a cordoned node. Jobs under Pathways may have no tolerations there.
    """
    little = {"name": "kinetic", "resources": {"requests": {"cpu": "50m"}}}
    priority = priority or os.environ.get("PRIORITY", "")  # noqa: TID251 - set by a fixture
    if tolerations is None:
        tolerations = () if priority else (ON_CORDONED,)
    return {
        "spec": {
            "containers": [little],
            **({"tolerations": list(tolerations)} if tolerations else {}),
            **({"priorityClassName": priority} if priority else {}),
        }
    }
