"""A node of a real cluster whose accelerator does not start. JAX is a stand-in: there is no accelerator."""

from __future__ import annotations

import json
from typing import Any

BUSY = "Unable to initialize backend 'tpu': open(/dev/vfio/0): Device or resource busy"
BRIDGE = f"""
import os

def backends():
    if os.environ["KINETIC_HOST_INDEX"] == "1" and os.environ["KINETIC_ATTEMPT"] == "1":
        raise RuntimeError({BUSY!r})
    return {{"tpu": Client()}}

class Client:
    local_devices = staticmethod(lambda: [0, 1, 2, 3])
"""
PROGRAM = """
import os, time, kinetic
from pods import small

@kinetic.run(os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
def function():
    import jax

    jax.devices()
    if os.environ["KINETIC_ATTEMPT"] == "1":
        time.sleep(600)
    return os.environ["TPU_WORKER_ID"], os.environ["TPU_WORKER_HOSTNAMES"].count(",")

if __name__ == "__main__":
    job = function.run_async()
    print(job.result(cleanup=False))
    print(job.outcome().message)
    print(job.job_id)
"""


def test_another_attempt_follows_and_the_node_is_named(on_slice: Any) -> None:
    project = on_slice
    package = project.root / "jax" / "_src"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text(
        "from jax._src import xla_bridge\n"
        "class config:\n    jax_platforms = 'tpu,cpu'\n"
        "class distributed:\n    initialize = staticmethod(lambda **_: None)\n"
        "def devices(): return xla_bridge.backends()\n"
    )
    (package / "__init__.py").touch()
    (package / "xla_bridge.py").write_text(BRIDGE)
    (project.root / "main.py").write_text(PROGRAM)

    done = project.run("main.py")

    assert done.returncode == 0, done.stdout + done.stderr
    value, message, job_id = done.stdout.splitlines()[-3:]
    assert value == "('0', 1)"
    (jobset,) = project.objects("jobset", job_id)
    assert jobset["status"]["restarts"] == 1
    assert not jobset["status"].get("restartsCountTowardsMax")
    outcome = json.loads(project.bucket.read("jobs", f"{job_id}/attempts/1/host-1.json"))
    assert (outcome["exit_code"], outcome["devices_expected"]) == (4, "tpu:4")
    assert (
        outcome["message"]
        == f"The accelerator of the node {outcome['node']} cannot be used: {BUSY}"
    )
    assert f"Attempt 1 met a bad node: {outcome['message']}." in message
