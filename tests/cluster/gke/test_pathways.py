"""Jobs under Pathways, with stand-ins for its components, as their users see them."""

from __future__ import annotations

import json
import secrets
from typing import Any

from standins import WORKERS, share_the_node_pool

MAIN = """
import os
import kinetic
from gates import gate
from pods import small
from workers import workers

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small(),
)
def function(evicted):
    print("on the head", flush=True)
    if os.environ["KINETIC_ATTEMPT"] == "1":
        gate(evicted)
    return workers(), os.environ["KINETIC_HOST_COUNT"], os.environ["KINETIC_PATHWAYS"], os.environ["JAX_PLATFORMS"]

if __name__ == "__main__":
    job = function.run_async(os.environ["GATE"])
    print(job.job_id, job.backend)
"""


def test_the_function_runs_on_the_head_sees_the_whole_slice_and_outlives_a_preemption(
    on_slice: Any, components: dict[str, str], relay: Any, wait_for: Any
) -> None:
    project, mark = on_slice, f"head-{secrets.token_hex(3)}"
    project.variables |= {**components, "KINETIC_BACKEND": ""}
    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    del project.variables["JAX_PLATFORMS"]
    (project.root / "workers.py").write_text(WORKERS)
    relay.change = share_the_node_pool

    job_id, backend = project.script(MAIN, GATE=mark).split()
    (workload,) = wait_for(lambda: project.objects("jobset", job_id))
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", job_id, "--follow")
    listed = json.loads(project.kinetic("jobs", "list", "--json"))
    project.await_gate(mark)
    lines = (line for line in iter(follow.stdout.readline, "") if "[kinetic]" not in line)
    first = next(lines)  # It follows the first attempt.
    (head,) = (pod for pod in project.objects("pod", job_id) if "-head-" in pod["metadata"]["name"])
    project.bed.evict(project.namespace, head["metadata"]["name"])
    value = project.kinetic("jobs", "result", job_id)
    printed = [first, *lines]
    _, err = follow.communicate()

    assert backend == "pathways"
    assert workload["metadata"]["labels"]["app"] == "kinetic-pathways"
    assert job_id in {one["job_id"] for one in listed}
    tag = components["KINETIC_PATHWAYS_SERVER_IMAGE"].rpartition(":")[2]
    assert str(("2", "1", tag, "proxy")) in value
    assert printed == ["on the head\n"] * 2, err
    assert project.kept(job_id) == []
    wait_for(lambda: not project.objects("jobset,job,pod,secret", job_id))
