"""A supervisor that is killed while its runners still report: their reports count, however late."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

import kinetic
from kinetic.job_status import JobStatus
from kinetic.testing import eventually
from kinetic_payload.layout import Env, JobObjects
from kinetic_payload.processes import marked
from kinetic_servers.gcs import Fault, GcsServer
from kinetic_servers.launches import kill_hard

SCRIPT = """
import os, signal, sys
import kinetic

hosts, stopping = int(sys.argv[1]), sys.argv[2] == "stopping"
backend, accelerator = ("local", "cpu") if hosts == 1 else ("local-gke", "tpu-v5litepod-16")

@kinetic.run(accelerator=accelerator, backend=backend)
def work():
    if stopping:
        # Until it is continued, the runner notices neither the end of this process nor of its supervisor.
        os.kill(os.getppid(), signal.SIGSTOP)
    return 42

if __name__ == "__main__":
    print(work.run_async().job_id)
"""


class Job:
    """A job whose processes are stopped, continued and killed at moments that a test chooses."""

    def __init__(self, project: Any, *, hosts: int, stopping: bool, more: dict[str, str]) -> None:
        project.write("work.py", SCRIPT)
        done = project.run("work.py", str(hosts), "stopping" if stopping else "", **more)
        assert done.returncode == 0, done.stderr
        self.job_id = done.stdout.split()[-1]
        self.handle = kinetic.attach(self.job_id)
        self.hosts = hosts
        self.names = JobObjects(self.job_id)
        self.supervisor = eventually(self._supervisor)

    def _supervisor(self) -> psutil.Process | None:
        processes = psutil.process_iter(["cmdline"])
        return next((p for p in processes if self.job_id in (p.info["cmdline"] or ())), None)

    def runners(self) -> list[psutil.Process]:
        return self.supervisor.children()

    def until_functions_ended(self) -> list[psutil.Process]:
        """Wait until all processes of the function have ended; return the stopped runners."""

        def ended() -> list[psutil.Process]:
            found = self.runners()
            inner = [child for runner in found for child in runner.children()]
            dead = all(child.status() == psutil.STATUS_ZOMBIE for child in inner)
            return found if len(inner) == self.hosts and dead else []

        found: list[psutil.Process] = eventually(ended)
        return found

    def processes(self) -> list[int]:
        return marked(f"{Env.JOB_ID}={self.job_id}")


@pytest.fixture
def started(
    project: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []
    monkeypatch.setenv("KINETIC_HOME", str(project.home))

    def start(*, hosts: int = 1, stopping: bool = True, store: str = "folder") -> Job:
        more = {}
        if store == "bucket":
            request.getfixturevalue("bucket")
            more = {"KINETIC_STORE": "gs://jobs"}
            monkeypatch.setenv("KINETIC_STORE", "gs://jobs")
        jobs.append(Job(project, hosts=hosts, stopping=stopping, more=more))
        return jobs[-1]

    yield start
    for job in jobs:
        for pid in (job.supervisor.pid, *job.processes()):
            kill_hard(pid)


@contextmanager
def holding(bucket: GcsServer, name: str) -> Iterator[Fault]:
    """Have the first write of an object wait for the end of the block, and fail then."""
    fault = bucket.faults.add(method="POST", name=f"*/{name}", times=1, held=True, status=503)
    try:
        yield fault
    finally:
        fault.release()


@pytest.mark.parametrize(("hosts", "store"), [(1, "bucket"), (4, "folder")])
def test_the_value_of_a_function_that_had_ended_counts_however_late_it_is_reported(
    started: Callable[..., Job], hosts: int, store: str
) -> None:
    job = started(hosts=hosts, store=store)
    runners = job.until_functions_ended()
    job.supervisor.kill()
    eventually(lambda: "supervisor died" in job.handle.outcome().message)
    assert job.handle.status() is JobStatus.RUNNING
    with pytest.raises(TimeoutError, match="supervisor died"):
        job.handle.result(timeout=0.01)

    with ThreadPoolExecutor() as pool:
        value = pool.submit(job.handle.result, timeout=100, cleanup=False)
        for runner in runners:
            runner.resume()
        assert value.result() == 42

    assert job.handle.status() is JobStatus.SUCCEEDED
    eventually(lambda: not job.processes())


def test_the_reports_of_all_hosts_count_although_all_processes_were_killed(
    started: Callable[..., Job], bucket: GcsServer
) -> None:
    with holding(bucket, "outcome.json") as fault:
        job = started(stopping=False, hosts=4, store="bucket")
        eventually(lambda: fault.hits)
        runners = job.runners()
        job.supervisor.kill()
        for runner in runners:
            kill_hard(runner.pid)

    assert job.handle.result(timeout=100, cleanup=False) == 42
    assert job.handle.outcome().final.written_by == "client"
    assert job.processes() == []


def test_a_runner_that_dies_before_its_report_is_a_failure_and_no_process_is_left(
    started: Callable[..., Job],
) -> None:
    job = started()
    [runner] = job.until_functions_ended()
    stray = psutil.Popen(
        ["sleep", "600"], env={Env.JOB_ID: job.job_id, "PATH": os.defpath}, start_new_session=True
    )
    job.supervisor.kill()
    kill_hard(runner.pid)

    with pytest.raises(RuntimeError, match="supervisor died"):
        job.handle.result(timeout=100)

    assert job.handle.status() is JobStatus.FAILED
    assert job.processes() == []
    assert stray.wait() == -signal.SIGKILL


def test_a_job_whose_report_does_not_arrive_can_be_cancelled(started: Callable[..., Job]) -> None:
    job = started()
    job.until_functions_ended()
    job.supervisor.kill()

    job.handle.cancel()

    assert job.processes() == []
    with pytest.raises(kinetic.JobCancelledError):
        job.handle.result(timeout=100)
