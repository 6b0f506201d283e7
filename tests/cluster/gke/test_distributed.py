"""Hosts of a real cluster join each other by the names of their pods."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)

PROGRAM = """
import os, kinetic
from pods import small

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="700Mi", capture_env_vars=["JAX_*"],
    pod_overrides=small(),
)
def function():
    import jax
    from jax.experimental import multihost_utils

    seen = multihost_utils.process_allgather(jax.numpy.array(10 + jax.process_index()))
    return jax.process_count(), jax.device_count(), seen.tolist()

if __name__ == "__main__":
    job = function.run_async()
    print(job.result(cleanup=False))
    print(job.job_id)
"""


def test_two_pods_compute_together(on_slice: Any, image_with_jax: str) -> None:
    project = on_slice
    (project.root / "main.py").write_text(PROGRAM)

    done = project.run("main.py", IMAGE=image_with_jax)

    assert done.returncode == 0, done.stdout + done.stderr
    *_, value, job_id = done.stdout.splitlines()
    assert value == "(2, 2, [10, 11])"
    for host in range(2):
        name = f"{job_id}/attempts/1/host-{host}.json"
        outcome = json.loads(project.bucket.read("jobs", name))
        assert (outcome["devices_seen"], outcome["succeeded"]) == ("cpu:1", True)
        assert outcome["peak_memory"] > 100 << 20
