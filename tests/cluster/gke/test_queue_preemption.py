"""A job that Kueue suspends in favour of another one, and resumes, as its user sees it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

KUEUE = "kueue.x-k8s.io/v1beta2"
JOBS = """
import os, sys
import kinetic
from gates import gate
from pods import small

@kinetic.run(
    "cpu", container_image=os.environ["IMAGE"], memory="128Mi", preemptions=1, pod_overrides=small(),
    labels={
        "kueue.x-k8s.io/queue-name": os.environ["QUEUE"],
        "kueue.x-k8s.io/priority-class": os.environ["QUEUE"] + "-" + sys.argv[1],
    } if __name__ == "__main__" else None,
)
def function(name):
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    print("attempt", attempt, "of", name, flush=True)
    if attempt == 1:
        gate(name)
    return name, attempt

if __name__ == "__main__":
    print(function.run_async(sys.argv[1]).job_id)
"""


@pytest.fixture
def queue(bed: Any, project: Any) -> Iterator[str]:
    """A queue for one job of 50m of cpu, which a job of the priority `high` takes from one of the priority `low`."""
    name, namespaced = f"kn-queue-{secrets.token_hex(3)}", f"namespaces/{project.namespace}/"
    quota = {"cpu": "80m", "memory": "10Gi"}
    resources = [{"name": kind, "nominalQuota": amount} for kind, amount in quota.items()]
    groups = [{"coveredResources": [*quota], "flavors": [{"name": name, "resources": resources}]}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    parts: dict[str, Any] = {
        f"resourceflavors/{name}": {"kind": "ResourceFlavor", "spec": {}},
        f"workloadpriorityclasses/{name}-low": {"kind": "WorkloadPriorityClass", "value": 1},
        f"workloadpriorityclasses/{name}-high": {"kind": "WorkloadPriorityClass", "value": 2},
        f"clusterqueues/{name}": {"kind": "ClusterQueue", "spec": spec},
        f"{namespaced}localqueues/{name}": {"kind": "LocalQueue", "spec": {"clusterQueue": name}},
    }
    bed.run("up", "--kueue")
    for path, part in parts.items():
        place, _, own = path.rpartition("/")
        body = {"apiVersion": KUEUE, "metadata": {"name": own}, **part}
        bed.ask("POST", f"apis/{KUEUE}/{place}", body=body)
    project.variables["QUEUE"] = name
    yield name
    for path in reversed(parts):
        bed.ask("DELETE", f"apis/{KUEUE}/{path}")


def test_a_job_that_kueue_suspends_for_another_one_resumes_and_costs_no_retry(
    project: Any, queue: str, wait_for: Any
) -> None:
    (project.root / "main.py").write_text(JOBS)
    low = project.run("main.py", "low").stdout.strip()
    project.await_gate("low")
    high = project.run("main.py", "high").stdout.strip()
    project.await_gate("high")
    waits = wait_for(
        lambda: said if "at position" in (said := project.kinetic("jobs", "status", low)) else None,
        every=1,
    )
    listed = {
        one["job_id"]: one["status"]
        for one in json.loads(project.kinetic("jobs", "list", "--json"))
    }
    project.pass_gate("high")
    first = project.kinetic("jobs", "result", high)
    (project.root / "ends.py").write_text(f"""
import kinetic
job = kinetic.attach("{low}")
print(job.result(cleanup=False))
print(job.outcome().message)
print(job.logs())
job.cleanup()
""")
    done = project.run("ends.py")

    assert "PENDING" in waits
    assert "It was suspended while it ran" in waits
    assert f"in the queue '{queue}', at position 1 of 1" in waits
    assert "Preempted to accommodate a workload" in waits
    assert "The quota is held by kn-function-" in waits
    assert (listed[low], listed[high]) == ("PENDING", "RUNNING")
    assert "('high', 1)" in first
    value, message, *log = done.stdout.splitlines()
    assert value == "('low', 2)", done.stderr
    assert message.startswith("Attempt 1 was preempted or stopped")
    assert "attempt 2 of low" in log


def test_a_batch_in_a_queue_is_one_workload_however_many_inputs_it_has(
    project: Any, queue: str, bed: Any
) -> None:
    one = "run_async(sys.argv[1]).job_id"
    many = "run_async_map([*'abc'], max_concurrent=1).group_id"
    (project.root / "main.py").write_text(JOBS.replace(one, many))
    group = project.run("main.py", "low").stdout.strip()
    project.await_gate("a")
    path = f"apis/{KUEUE}/namespaces/{project.namespace}/workloads"
    (job,) = project.objects("job", group)
    owners = [each["metadata"]["ownerReferences"][0] for each in bed.ask("GET", path)["items"]]
    for name in "abc":
        project.pass_gate(name)
    values = project.kinetic("batches", "results", group, "--cleanup")

    assert [owner["uid"] for owner in owners].count(job["metadata"]["uid"]) == 1 == len(owners)
    assert values.splitlines() == [f"{n}  ({name!r}, 1)" for n, name in enumerate("abc")]
