"""Jobs on a real cluster: their removal, and their log."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.creation import create_workload
from kinetic_k8s.cluster.logs import PodLog
from kinetic_k8s.cluster.removal import remove_workload
from kinetic_k8s.cluster.watch import Watch, Watched
from kinetic_k8s.errors import StillThereError
from kinetic_k8s.manifests.job import JobSpec
from kinetic_k8s.manifests.labels import of_job
from kinetic_k8s.reading.status import State, WorkloadStatus, status_of

Make = Callable[..., JobSpec]
UNTIL_TERM = """
import signal, sys, time
def stop(*_):
    time.sleep({slow})
    print("stopped", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(600)
"""


def watched(spec: JobSpec) -> list[Watched]:
    return [
        Watched(kind="Pod", labels=of_job(spec.pod.job_id)),
        Watched(kind="Job", labels=of_job(spec.pod.job_id)),
    ]


def pod_of(cluster: ApiServer, spec: JobSpec) -> str:
    """Return the name of a job's pod as soon as there is one."""
    with Watch(cluster, watched(spec)) as watch:
        while not (pods := cluster.list("Pod", labels=of_job(spec.pod.job_id))):
            watch.wait(60)
    return pods[0]["metadata"]["name"]


def ready_pod(cluster: ApiServer, spec: JobSpec) -> str:
    """Return the name of a job's pod when its program has printed something."""
    name = pod_of(cluster, spec)
    with PodLog(cluster, name) as log:
        assert next(iter(log)) == "ready"
    return name


def test_a_removed_job_is_gone_only_when_its_pod_has_ended(
    cluster: ApiServer, a_job: Make, look: Any
) -> None:
    spec = a_job(UNTIL_TERM.format(slow=3), grace=timedelta(seconds=20))
    create_workload(cluster, spec)
    pod = ready_pod(cluster, spec)
    selector = of_job(spec.pod.job_id)

    with pytest.raises(StillThereError, match=pod):
        remove_workload(cluster, "Job", spec.name, pods=selector, timeout=0)
    assert cluster.get("Job", spec.name) is None
    left = status_of(None, cluster.list("Pod", labels=selector), attempts=1)
    assert left == WorkloadStatus(
        State.RUNNING, "The job is deleted; its pod is still ending.", over=False
    )
    with PodLog(cluster, pod) as log:
        assert list(log) == ["ready", "stopped"]
    remove_workload(cluster, "Job", spec.name, pods=selector, timeout=60)
    assert status_of(None, cluster.list("Pod", labels=selector)).state is State.ABSENT


def test_a_log_is_followed_from_before_the_start_to_the_last_line(
    cluster: ApiServer, a_job: Make, look: Any
) -> None:
    # The program goes on only when its line has been read: it is live, or the test hangs.
    spec = a_job(
        """
import os, sys
for number in range(3):
    print("line", number, flush=True)
    os.mkfifo("/kinetic/workspace/go")
    open("/kinetic/workspace/go").read()
    os.remove("/kinetic/workspace/go")
print("carriage\\rreturn")
print("the end", end="")
"""
    )
    create_workload(cluster, spec)
    name = pod_of(cluster, spec)
    lines = []

    with PodLog(cluster, name) as log:
        for line in log:
            lines.append(line)
            if line.startswith("line"):
                write = (
                    "until [ -p /kinetic/workspace/go ]; do :; done; echo > /kinetic/workspace/go"
                )
                look.bed.kubectl("exec", name, "-n", look.namespace, "--", "sh", "-c", write)
    assert lines == ["line 0", "line 1", "line 2", "carriage\rreturn", "the end"]
    with PodLog(cluster, name, follow=False, tail=2) as log:
        assert list(log) == ["carriage\rreturn", "the end"]
    with PodLog(cluster, name, uid="of an earlier pod") as log:
        assert list(log) == []


def test_a_log_that_is_closed_from_another_thread_ends_at_once(
    cluster: ApiServer, a_job: Make
) -> None:
    never_starts = a_job("pass", image="kinetic.test/no-such-image")
    silent = a_job(UNTIL_TERM.format(slow=0))
    for spec in (never_starts, silent):
        create_workload(cluster, spec)

    for name in (ready_pod(cluster, silent), pod_of(cluster, never_starts)):
        with PodLog(cluster, name) as log:
            threading.Timer(0.5, log.close).start()
            assert set(log) <= {"ready"}
    for spec in (never_starts, silent):
        cluster.delete("Job", spec.name)


def test_a_log_of_a_pod_that_is_gone_has_no_lines(cluster: ApiServer) -> None:
    with PodLog(cluster, "no-such-pod") as log:
        assert list(log) == []
    with PodLog(cluster, "no-such-pod", follow=False) as log:
        assert list(log) == []


def test_a_log_of_a_container_that_ended_without_a_start_has_no_lines(
    cluster: ApiServer, relay: Any, relayed: ApiServer, a_job: Make
) -> None:
    spec = a_job("pass", image="kinetic.test/no-such-image")
    create_workload(cluster, spec)
    name = pod_of(cluster, spec)
    refusal = f'container "kinetic" in pod "{name}" is terminated'
    relay.fail("/log?", 400, refusal, reason="BadRequest")

    with PodLog(relayed, name, follow=False) as log:
        assert list(log) == []
    cluster.delete("Job", spec.name)
