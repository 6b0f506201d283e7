"""Jobs on several hosts of a real cluster, as their users see them."""

from __future__ import annotations

import json
from typing import Any

from kinetic_k8s.reading.attempts import PodView
from kinetic_servers.gcs import Faults

HEAD = """
import os, sys
import kinetic
from gates import gate
from pods import small

on_slice = kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi",
    capture_env_vars=["JAX_*"], pod_overrides=small(),
)
"""
SUBMIT = """
if __name__ == "__main__":
    print(function.run_async().job_id)
"""


def submit(project: Any, function: str, **environment: str) -> str:
    return str(project.script(HEAD + function + SUBMIT, **environment).split()[-1])


def test_two_hosts_restart_together_after_each_eviction_and_the_value_is_the_leaders(
    on_slice: Any, look: Any, faults: Faults, wait_for: Any
) -> None:
    project = on_slice

    def evict(host: int, restarts: int) -> None:
        found = (PodView(pod) for pod in project.objects("pod", job_id))
        (pod,) = (pod for pod in found if (pod.host, pod.restarts) == (host, restarts))
        look.evict(pod.name, grace=2)
        restarted = restarts + 1
        wait_for(
            lambda: project.objects("jobset", job_id)[0]["status"].get("restarts") == restarted
        )

    job_id = submit(
        project,
        """
@on_slice
def function():
    host = os.environ["KINETIC_HOST_INDEX"]
    attempt = os.environ["KINETIC_ATTEMPT"]
    print("host", host, "attempt", attempt, flush=True)
    if attempt == "1":
        gate("slice-" + host)
    return host, attempt, os.environ["KINETIC_HOST_COUNT"]
""",
    )
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", job_id, "--follow")
    project.await_gate("slice-0")
    project.await_gate("slice-1")
    # A slow cluster prints first that a host waits for the other one.
    lines = (line for line in iter(follow.stdout.readline, "") if "[kinetic]" not in line)
    begun = [next(lines), next(lines)]
    running = json.loads(project.kinetic("jobs", "list", "--json"))
    (workload,) = project.objects("jobset", job_id)
    report = {"method": "POST", "name": f"{job_id}/attempts/2/host-0.json"}
    held = faults.add(**report, times=1, held=True, reset="before")
    evict(1, restarts=0)
    between = project.kinetic("jobs", "status", job_id)
    wait_for(lambda: held.hits and f"{job_id}/attempts/2/host-1.json" in project.kept(job_id))
    evict(0, restarts=1)
    held.release()
    value = project.kinetic("jobs", "result", job_id)
    out, err = follow.communicate()

    assert sorted(begun) == [f"[host {n}] host {n} attempt 1\n" for n in (0, 1)]
    assert [one["status"] for one in running if one["job_id"] == job_id] == ["RUNNING"]
    assert workload["metadata"]["name"].startswith("kn-function-")
    assert "RUNNING" in between
    assert "('0', '3', '2')" in value
    lines = [line for line in out.splitlines() if "[kinetic]" not in line]
    later = [f"[host {n}] host {n} attempt {attempt}" for n in (0, 1) for attempt in (2, 3)]
    assert sorted(lines) == later, out + err
    assert [err.count(f"Attempt {attempt} begins") for attempt in (2, 3)] == [1, 1], err
    wait_for(lambda: not project.objects("jobset,job,pod,secret", job_id))


def test_without_jobsets_two_hosts_run_as_an_indexed_job_and_the_user_is_warned(
    on_slice: Any, relay: Any
) -> None:
    project = on_slice
    relay.hidden |= {"jobset.x-k8s.io"}
    project.variables["KUBECONFIG"] = relay.kubeconfig(project.root.parent)
    (project.root / "main.py").write_text(
        HEAD
        + """
@on_slice
def function():
    return os.environ["KINETIC_HOST_INDEX"], os.environ["KINETIC_HOST_COUNT"]

if __name__ == "__main__":
    print(function())
"""
    )
    done = project.run("main.py")

    assert "('0', '2')" in done.stdout, done.stderr
    assert done.stderr.count("does not serve JobSets") == 1
