"""Hosts agree on the number of an attempt where the cluster counts no restart."""

from __future__ import annotations

import json
from typing import Any

PROGRAM = """
import os, kinetic
from gates import gate
from pods import small

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", capture_env_vars=["JAX_*"],
    pod_overrides=small(),
)
def function():
    attempt, host = os.environ["KINETIC_ATTEMPT"], os.environ["KINETIC_HOST_INDEX"]
    if attempt == "1":
        gate("agreement-" + host)
    return attempt

if __name__ == "__main__":
    print(function.run_async().job_id)
"""


def test_a_suspended_jobset_runs_its_next_attempt_when_it_is_resumed(
    on_slice: Any, wait_for: Any
) -> None:
    project = on_slice
    (project.root / "main.py").write_text(PROGRAM)
    done = project.run("main.py")
    assert done.returncode == 0, done.stdout + done.stderr
    job_id = done.stdout.split()[-1]
    project.await_gate("agreement-0")
    project.await_gate("agreement-1")
    (jobset,) = project.objects("jobset", job_id)
    named = ("jobset", jobset["metadata"]["name"], "-n", project.namespace)

    # This is what Kueue does.
    for suspend in (True, False):
        patch = json.dumps({"spec": {"suspend": suspend}})
        project.bed.kubectl("patch", *named, "--type=merge", "-p", patch)
        wait_for(lambda on=suspend: bool(project.objects("pod", job_id)) is not on)

    value = project.kinetic("jobs", "result", job_id, "--no-cleanup")
    (jobset,) = project.objects("jobset", job_id)
    assert "2" in value.split()[-1]
    assert not jobset["status"].get("restarts")
    claims = [name for name in project.kept(job_id) if name.endswith(".claim")]
    assert len(claims) == 4
