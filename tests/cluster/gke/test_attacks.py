"""A writer without the key attacks what the hosts of a job write for each other: forgeries and replays are refused.

`tests/wire/test_attacks.py` attacks jobs on one host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

import kinetic
from kinetic.errors import IntegrityError, KineticError, SignatureError
from kinetic.job_status import JobStatus
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import Outcome
from kinetic_servers.gcs import Fault, Faults


class Attacker:
    """Reads and writes the objects of jobs, and has no key."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def read(self, name: str) -> bytes:
        found: bytes = self.server.read("jobs", name)
        return found

    def write(self, name: str, data: bytes) -> None:
        path = f"/upload/storage/v1/b/jobs/o?uploadType=media&name={name}"
        assert urllib3.request("POST", f"{self.server.endpoint}{path}", body=data).status == 200

    def copy(self, source: str, target: str) -> None:
        self.write(target, self.read(source))

    def holding(self, operation: str, name: str, *, times: int | None = None) -> Fault:
        """Hold requests of that kind from now on."""
        fault: Fault = self.server.faults.add(
            operation=operation, name=name, held=True, times=times
        )
        return fault


@pytest.fixture
def attacker(project: Any, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attacker]:
    # This process reads the jobs.
    for name, value in project.environment.items():
        monkeypatch.setenv(name, value)
    yield Attacker(project.bucket)
    faults.clear()


def collected(job_id: str) -> Any:
    """Return what a user gets who collects the job: the value, or the exception."""
    try:
        return kinetic.attach(job_id).result(timeout=240, cleanup=False)
    except (KineticError, ValueError) as error:
        return error


def report(job: JobObjects, attempt: int, host: int, **fields: Any) -> bytes:
    forged = {"succeeded": False, "reason": "terminated", "phase": "call", "exit_code": 143}
    outcome = HostOutcome(job_id=job.job_id, attempt=attempt, host=host, **{**forged, **fields})
    return encode(outcome)


def claim(job: JobObjects, attempt: int, host: int) -> bytes:
    return encode(
        Claim(
            job_id=job.job_id,
            attempt=attempt,
            host=host,
            hostname="theirs",
            pid=1,
            claimed_at=1.0,
            restarts=attempt - 1,
        )
    )


HOSTS = """
import os

import kinetic
from gates import gate
from pods import small

@kinetic.run(
    os.environ["SLICE"], container_image=os.environ["IMAGE"], memory="128Mi", retries=1,
    pod_overrides=small(),
)
def function():
    attempt, host = os.environ["KINETIC_ATTEMPT"], os.environ["KINETIC_HOST_INDEX"]
    gate(f"attacked-{attempt}-{host}")
    raise ValueError(f"attempt {attempt} on host {host}")

if __name__ == "__main__":
    print(function.run_async().job_id)
"""


def test_forgeries_between_the_hosts_of_a_job_are_ignored(
    on_slice: Any, attacker: Attacker, wait_for: Any
) -> None:
    project = on_slice
    held = [
        attacker.holding("objects.insert*", f"*/attempts/{attempt}/host-0.claim", times=1)
        for attempt in (1, 2)
    ]
    job = JobObjects(project.script(HOSTS).strip())

    # The leader is about to claim the first attempt.
    wait_for(lambda: held[0].hits)
    for host in (0, 1):
        attacker.write(job.claim(1, host), claim(job, 1, host))
        attacker.write(job.host_outcome(1, host), report(job, 1, host))
    attacker.write(job.gathered(1), claim(job, 1, 0))
    cancelled = Outcome(job_id=job.job_id, status="cancelled", written_by="client")
    attacker.write(job.outcome, encode(cancelled))
    held[0].release()
    for host in (0, 1):
        project.await_gate(f"attacked-1-{host}")
    project.pass_gate("attacked-1-1")

    # Host 1 has failed, and both were restarted.
    wait_for(lambda: held[1].hits)
    failed, stopped = job.host_outcome(1, 1), job.host_outcome(1, 0)
    assert json.loads(attacker.read(failed))["error"]["message"] == "attempt 1 on host 1"
    for host in (0, 1):
        attacker.copy(job.claim(1, host), job.claim(2, host))
    attacker.copy(failed, job.host_outcome(2, 0))
    attacker.copy(stopped, job.host_outcome(2, 1))
    attacker.copy(job.gathered(1), job.gathered(2))
    attacker.write(failed, report(job, 1, 1))
    held[1].release()
    for host in (0, 1):
        project.await_gate(f"attacked-2-{host}")
    assert kinetic.attach(job.job_id).status() is JobStatus.RUNNING
    project.pass_gate("attacked-2-1")

    # A forged preemption causes no further attempt.
    error = collected(job.job_id)
    assert str(error) == "attempt 2 on host 1"
    [jobset] = project.objects("jobset", job.job_id)
    assert jobset["status"]["restarts"] == 1
    hosts = kinetic.attach(job.job_id).outcome().hosts
    assert (1, 1) not in {(host.attempt, host.host) for host in hosts}
    attacker.write(job.host_outcome(2, 1), report(job, 2, 1))
    assert isinstance(collected(job.job_id), IntegrityError)
    attacker.copy(job.claim(1, 1), job.outcome)
    assert isinstance(collected(job.job_id), SignatureError)
