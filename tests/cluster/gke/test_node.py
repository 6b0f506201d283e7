"""Nodes that are drained or lost under jobs that run, and pods that are deleted."""

from __future__ import annotations

import json
import secrets
from typing import Any

from kinetic_servers.gcs import Faults

UNREACHABLE = "node.kubernetes.io/unreachable:NoExecute"
"""The taint of a lost node. Pods tolerate it for 300 s; the cluster removes it from a node that is ready."""


def test_the_next_attempt_has_the_value_after_a_drain_a_lost_node_or_a_deleted_pod(
    project: Any, faults: Faults, look: Any, copy_project: Any, wait_for: Any
) -> None:
    mark = secrets.token_hex(3)
    copy_project("disrupted", project.root)
    copy_project("ends.py", project.root)
    submitted = project.run("main.py", mark)
    assert submitted.returncode == 0, submitted.stderr
    drained, lost, deleted = jobs = submitted.stdout.split()
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", lost, "--follow")
    for name in ("drained", "lost", "deleted"):
        project.await_gate(f"{name}-{mark}")
    first = follow.stdout.readline()
    pods = {job: project.objects("pod", job)[0] for job in jobs}
    node = pods[drained]["spec"]["nodeName"]
    # A node that is lost reports nothing.
    report = faults.add(
        name=f"{lost}/attempts/1/host-0.json", method="POST", held=True, reset="before"
    )

    def delete(job: str, *options: str) -> None:
        name, of = pods[job]["metadata"]["name"], ("-n", project.namespace, "--wait=false")
        project.bed.kubectl("delete", "pod", name, *of, *options)

    project.bed.kubectl("taint", "node", node, UNREACHABLE)
    wait_for(lambda: "deletionTimestamp" in project.objects("pod", lost)[0]["metadata"])
    (ended,) = project.objects("pod", lost)
    delete(lost, "--now")
    delete(deleted)
    project.bed.kubectl("cordon", node)
    try:
        look.evict(pods[drained]["metadata"]["name"])
        between = wait_for(
            lambda: (
                text
                if "node(s) were unschedulable"
                in (text := project.kinetic("jobs", "status", drained))
                else None
            ),
            every=1,
        )
    finally:
        project.bed.kubectl("uncordon", node)
    done = project.run("ends.py", *jobs)
    assert done.returncode == 0, done.stderr
    report.release()
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    out, err = follow.communicate()

    assert "RUNNING" in between
    assert "It waits for another pod to replace the last one." in between
    assert "DeletionByTaintManager" in json.dumps(ended["status"]["conditions"])
    assert [(value, reported) for value, reported, _ in ends] == [
        (2, {"1": ["terminated"], "2": ["returned"]}),
        (2, {"1": [], "2": ["returned"]}),
        (2, {"1": ["terminated"], "2": ["returned"]}),
    ]
    preempted = "Attempt 1 was preempted or stopped"
    messages = (preempted, "Attempt 1 ended without a report", preempted)
    assert all(
        message.startswith(text) for (_, _, message), text in zip(ends, messages, strict=True)
    )
    lines = [line for line in (first + out).splitlines() if "[kinetic]" not in line]
    assert lines == ["attempt 1", "attempt 2"], out + err
