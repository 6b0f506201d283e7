"""The pods of these tests. Projects have a copy of this file.

Each may use the whole node, and asks for little, so that many fit on it. A limit of 400 millicores would
double the time of a job, most of which is the start of Python.
"""

import os
from typing import Any


def small(priority: str = "") -> dict[str, Any]:
    """Return the overrides of such a pod, with a priority if one is given or set."""
    little = {"name": "kinetic", "resources": {"requests": {"cpu": "50m"}}}
    priority = priority or os.environ.get("PRIORITY", "")  # noqa: TID251 - set by a fixture
    return {
        "spec": {
            "containers": [little],
            **({"priorityClassName": priority} if priority else {}),
        }
    }
