"""Parts of the cluster that stop while a job runs, and while clients wait for it and follow its log."""

from __future__ import annotations

import secrets
import signal
import threading
from typing import Any

from bed import send

STOPPED = 30.0
"""Seconds for which the API server does not respond."""


def test_a_killed_kubelet_and_a_stopped_api_server_cost_no_value_and_no_line(
    project: Any, copy_project: Any, wait_for: Any, alone_on_node: Any
) -> None:
    mark = secrets.token_hex(3)
    copy_project("outages", project.root)
    submitted = project.run("main.py", mark)
    assert submitted.returncode == 0, submitted.stderr
    job_id = submitted.stdout.strip()
    result = project.start("-m", "kinetic_cli", "jobs", "result", job_id)
    follow = project.start("-m", "kinetic_cli", "jobs", "logs", job_id, "--follow")
    project.await_gate(f"kubelet-{mark}")
    first = [follow.stdout.readline() for _ in range(20)]
    bed = project.bed
    with alone_on_node():
        send(bed.folder, "kubelet", signal.SIGKILL)
        project.pass_gate(f"kubelet-{mark}")
        project.await_gate(f"server-{mark}")
        bed.run("up")
        send(bed.folder, "kube-apiserver", signal.SIGSTOP)
        go_on = [bed.folder, "kube-apiserver", signal.SIGCONT]
        stopped = threading.Timer(STOPPED, send, go_on)
        stopped.start()
        try:
            project.pass_gate(f"server-{mark}")
            wait_for(lambda: f"{job_id}/outcome.json" in project.kept(job_id))
            ended_meanwhile = stopped.is_alive()
            report = project.bucket.read("jobs", f"{job_id}/attempts/1/host-0.json")
        finally:
            stopped.join()
    value, error = result.communicate()
    out, err = follow.communicate()

    assert ended_meanwhile, report
    assert value.split()[-1] == "kept", error
    lines = [line for line in ("".join(first) + out).splitlines() if "[kinetic]" not in line]
    assert lines == [f"{part} {n}" for part in ("begin", "kubelet", "server") for n in range(20)], (
        err
    )
