"""Evictions of a pod in each phase of its runner."""

from __future__ import annotations

import json
import secrets
from typing import Any

from kinetic_servers.gcs import Fault, Faults


class After(Fault):
    """Hits requests after *first* has hit one."""

    def __init__(self, first: Fault, **what: Any) -> None:
        super().__init__(**what)
        self.first = first

    def matches(self, *request: str) -> bool:
        return self.first.hits > 0 and super().matches(*request)


def test_an_eviction_in_any_phase_costs_an_attempt_and_yields_one_value(
    project: Any, faults: Faults, look: Any, copy_project: Any, wait_for: Any
) -> None:
    mark = f"-{secrets.token_hex(3)}"
    held: list[Fault] = []

    def hold(function: str, name: str, **more: Any) -> None:
        """Hold a request of the job of *function*; it is lost with its pod."""
        what = {"name": f"cpu-{function}-*/{name}", "times": 1, "held": True, "reset": "before"}
        held.append(faults.add(**{**what, **more}))

    hold("before-claim", "attempts/1/host-0.claim", method="POST")
    hold("while-downloading", "payload.pkl", operation="objects.get.media")
    hold("while-uploading", "attempts/1/host-0.pkl", method="POST")
    # The outcome is stored, and the runner does not learn that.
    lost = Fault(name="cpu-after-outcome-*/outcome.json", method="POST", times=1, reset="after")
    held.append(faults.add(After(lost, name=lost.name, times=1, held=True, reset="before")))
    faults.add(lost)
    copy_project("phases", project.root)
    copy_project("ends.py", project.root)
    submitted = project.run("main.py", mark)
    assert submitted.returncode == 0, submitted.stderr
    jobs = submitted.stdout.split()
    project.await_gate(f"in-function{mark}")
    wait_for(lambda: all(fault.hits for fault in held))
    first = {}
    for job_id in jobs:
        (pod,) = project.objects("pod", job_id)
        first[job_id] = pod["metadata"]["uid"]
        look.evict(pod["metadata"]["name"], grace=3)
    wait_for(
        lambda: (
            not any(
                pod["metadata"]["uid"] == first[job_id]
                for job_id in jobs
                for pod in project.objects("pod", job_id)
            )
        )
    )
    for fault in held:
        fault.release()
    project.pass_gate(f"in-function{mark}")
    # The pod that replaces the last one finds an outcome.
    (last,) = project.objects("jobset", jobs[-1])
    path = project.bed.path_of("jobset", project.namespace, last["metadata"]["name"])
    project.bed.until(path, "Completed")
    done = project.run("ends.py", *jobs)
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    ran = {name for name in project.bucket.names("gates") if name.startswith("ran-")}

    # What has not begun is no attempt, and nothing runs after the outcome.
    expected = {
        "before-claim": [1],
        "while-downloading": [2],
        "in-function": [1, 2],
        "while-uploading": [1, 2],
        "after-outcome": [1],
    }
    assert {name for name in ran if mark in name} == {
        f"ran-{phase}{mark}-{attempt}" for phase, runs in expected.items() for attempt in runs
    }
    for (value, reported, message), (phase, runs) in zip(ends, expected.items(), strict=True):
        assert value == runs[-1], phase
        assert reported.pop(str(value)) == ["returned"], phase
        # A runner that is killed while it waits for the bucket cannot report.
        assert reported in ([{"1": []}, {"1": ["terminated"]}] if value == 2 else [{}]), phase
        end = "was preempted or stopped" if reported.get("1") else "ended without a report"
        assert message.startswith(f"Attempt 1 {end}") == (value == 2), message
