"""Pools: ComputeClasses of the real API server; the test plays the part of GKE's autoscaler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

POOL = "kinetic-v100"
UNTIL = "2026-11-27 12:00:00 UTC"
SCRIPT = """
    import os, kinetic
    from pods import small

    @kinetic.run("v100", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
    def answer():
        return 42

    if __name__ == "__main__":
        print(answer.run_async().job_id)
"""


@pytest.fixture
def machines(bed: Any) -> Iterator[Callable[..., None]]:
    """Return what makes the node a machine of the pool; no other test may ask for its accelerator."""

    def make(kind: str) -> None:
        label = f"cloud.google.com/compute-class={POOL}"
        bed.run("accel", "gpu", "--count", "1", "--type", kind, "--label", label)

    yield make
    bed.kubectl("label", "node", "--all", "cloud.google.com/compute-class-")
    bed.kubectl("delete", "computeclass", POOL, "--ignore-not-found")


@pytest.fixture
def another(bed: Any) -> Iterator[str]:
    """Return the name of a class that somebody else has made, with the label of ours."""
    theirs = {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": "another", "labels": {"app": "kinetic"}},
        "spec": {"priorities": [{"machineFamily": "n2"}]},
    }
    bed.kubectl("apply", "-f", "-", given=json.dumps(theirs))
    yield "another"
    bed.kubectl("delete", "computeclass", "another", "--ignore-not-found")


def test_jobs_of_an_accelerator_run_on_the_machines_of_its_pool(
    project: Any, bed: Any, machines: Callable[..., None], wait_for: Callable[..., Any]
) -> None:
    def pools() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(project.kinetic("pool", "list", "--json"))
        return [pool for pool in found if pool["name"] == POOL]

    def kept() -> dict[str, Any]:
        spec: dict[str, Any] = json.loads(bed.kubectl("get", "computeclass", POOL, "-o", "json"))[
            "spec"
        ]
        return spec

    v100 = ("pool", "add", "--accelerator", "v100")
    assert json.loads(project.kinetic(*v100, "--dry-run"))["kind"] == "ComputeClass"
    assert pools() == []
    added = project.kinetic(*v100, "--fallback", "t4", "--fallback", "v100:flex-start")
    assert added == f"Added pool {POOL}: v100, else t4, else v100:flex-start.\n"
    # What others set, and what is not given again, stays; also in a priority.
    set_by_others = '[{"op":"add","path":"/spec/priorities/0/location","value":{"zones":["us-a"]}}]'
    bed.kubectl("patch", "computeclass", POOL, "--type=json", "-p", set_by_others)
    bed.kubectl("patch", "computeclass", POOL, "--type=merge", "-p", '{"spec":{"autoscalingPolicy":'
                '{"consolidationDelayMinutes":7}}}')  # fmt: skip
    assert project.kinetic(*v100, "--min-nodes", "2").startswith("Changed")
    spec = kept()
    assert [[*rule] for rule in spec["priorities"]] == [
        ["gpu", "location", "spot"], ["gpu", "spot"], ["flexStart", "gpu", "maxRunDurationSeconds"],
    ]  # fmt: skip
    assert spec["minimumCapacity"] == {"targetNodeCount": 2}
    assert project.kinetic(*v100, "--min-nodes", "0").startswith("Changed")
    assert "minimumCapacity" not in kept()
    assert kept()["autoscalingPolicy"] == {"consolidationDelayMinutes": 7}

    job_id = project.script(SCRIPT).split()[-1]
    message = f"It failed due to the OutOfResources error. Backing off until {UNTIL}."
    suspended = {
        "type": "ProvisioningSuspended", "status": "True", "reason": "OutOfResources",
        "message": message, "lastTransitionTime": "2026-11-27T11:00:00Z",
    }  # fmt: skip
    status = {"priorityStatuses": [{"identifier": "0", "conditions": [suspended]}]}
    bed.kubectl("patch", "computeclass", POOL, "--subresource=status", "--type=merge", "-p",
                json.dumps({"status": status}))  # fmt: skip
    shown = wait_for(
        lambda: (text := project.kinetic("jobs", "status", job_id)).count(POOL) and text, every=1
    )
    assert f"v100 (in cool-down until {UNTIL}: OutOfResources), t4, v100:flex-start" in shown
    (seen,) = pools()
    assert (seen["jobs"], seen["nodes"]) == ([job_id], 0)
    kept_for_job = project.run("-m", "kinetic_cli", "pool", "remove", POOL)
    assert kept_for_job.returncode == 1
    assert job_id in kept_for_job.stderr

    machines("nvidia-tesla-t4")
    assert project.kinetic("jobs", "result", job_id) == "42\n"
    (seen,) = pools()
    assert (seen["jobs"], seen["nodes"]) == ([], 1)
    assert project.kinetic("pool", "remove", POOL) == f"Removed pool {POOL}.\n"
    assert pools() == []


def test_a_class_of_somebody_else_is_neither_changed_nor_removed(
    project: Any, bed: Any, another: str
) -> None:
    before = bed.kubectl("get", "computeclass", another, "-o", "json")

    refused = [
        project.run("-m", "kinetic_cli", "pool", *arguments).stderr
        for arguments in (
            ("add", "--accelerator", "a100", "--name", another),
            ("remove", another, "--yes"),
        )
    ]

    assert "that Kinetic did not make" in refused[0]
    assert f"There is no pool {another!r}" in refused[1]
    assert bed.kubectl("get", "computeclass", another, "-o", "json") == before
