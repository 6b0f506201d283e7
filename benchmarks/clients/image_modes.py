"""A user's script: one job, from the call to the first line of its function."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import kinetic

FOUND, IMAGE, OVERRIDES = sys.argv[1:4]
"""The file of the findings, the `container_image`, and the pod's overrides as JSON."""
INSTALLED = "/kinetic/workspace/environment/lib/python3.11/site-packages"


@kinetic.run("cpu", container_image=IMAGE, pod_overrides=json.loads(OVERRIDES), memory="512Mi")
def first_line() -> tuple[float, int]:
    now = time.time()
    return now, len(list(Path(INSTALLED).glob("*.dist-info")))


if __name__ == "__main__":
    began = time.time()
    job = first_line.run_async()
    submitted = time.time()
    reached, installed = job.result(cleanup=False)
    found = {
        "start": reached - began,
        "submit": submitted - began,
        "installed": installed,
        "image": job.image_uri,
    }
    Path(FOUND).write_text(json.dumps(found))
