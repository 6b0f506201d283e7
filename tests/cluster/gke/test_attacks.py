"""Jobs on a cluster whose bucket a writer without the key attacks: forgeries and replays are refused.

`tests/wire/test_attacks.py` makes more attacks, on jobs of one machine.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
import urllib3

import kinetic
from kinetic.errors import IntegrityError, KineticError, SignatureError
from kinetic.job_status import JobStatus
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.outcome import Outcome
from kinetic_servers.gcs import Fault, Faults

CANARY = "canary"


class Canary:
    """Writes an object when it is unpickled."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __reduce__(self) -> Any:
        return urlopen, (Request(self.url, data=b"", method="POST"),)


class Attacker:
    """Reads and writes the objects of jobs, and has no key."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.evil = pickle.dumps(Canary(self._url("gates", CANARY)))

    def _url(self, bucket: str, name: str) -> str:
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        return f"{self.server.endpoint}{path}"

    def read(self, name: str) -> bytes:
        found: bytes = self.server.read("jobs", name)
        return found

    def write(self, name: str, data: bytes) -> None:
        assert urllib3.request("POST", self._url("jobs", name), body=data).status == 200

    def copy(self, source: str, target: str) -> None:
        self.write(target, self.read(source))

    @contextmanager
    def undone(self, *names: str) -> Iterator[None]:
        before = {name: self.read(name) for name in names}
        yield
        for name, data in before.items():
            self.write(name, data)

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
    assert CANARY not in project.bucket.names("gates"), "the attacker's code ran"


def collected(job_id: str) -> Any:
    """Return what a user gets who collects the job: the value, or the exception."""
    try:
        return kinetic.attach(job_id).result(timeout=240, cleanup=False)
    except (KineticError, ValueError) as error:
        return error


def cancelled(job: JobObjects) -> bytes:
    return encode(Outcome(job_id=job.job_id, status="cancelled", written_by="client"))


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


ALONE = """
import os
from pathlib import Path

import kinetic
from gates import gate
from pods import small

@kinetic.run("cpu", container_image=os.environ["IMAGE"], memory="128Mi", pod_overrides=small())
def function(name):
    if name == "running":
        gate("attacked")
    return name

if __name__ == "__main__":
    for name in ("older", "running", "call", "project"):
        Path("files.txt").write_text("other" if name == "project" else "")
        print(function.run_async(name).job_id)
"""


def test_forgeries_and_replays_of_a_job_on_a_cluster_are_refused(
    project: Any, attacker: Attacker, wait_for: Any
) -> None:
    held = [attacker.holding("objects.get.media", name) for name in ("*/payload.pkl", "contexts/*")]
    older, running, call, files = (JobObjects(job_id) for job_id in project.script(ALONE).split())

    # Before the pods have read them.
    header = attacker.read(call.payload).partition(b"\n")[0]
    attacker.write(call.payload, header + b"\n" + attacker.evil)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("sitecustomize.py", f"import pickle; pickle.loads({attacker.evil!r})")
    forged = context_object(json.loads(attacker.read(files.handle))["context_digest"])
    attacker.write(forged, archive.getvalue())
    attacker.write(running.claim(1, 0), claim(running, 1, 0))
    attacker.write(running.outcome, cancelled(running))
    for fault in held:
        fault.release()

    # While one runs, and another one has ended.
    project.await_gate("attacked")
    assert collected(older.job_id) == "older"
    for source, target in (
        (older.outcome, running.outcome),
        (older.host_outcome(1, 0), running.host_outcome(1, 0)),
    ):
        attacker.copy(source, target)
        assert kinetic.attach(running.job_id).status() is JobStatus.RUNNING
    project.pass_gate("attacked")
    assert collected(running.job_id) == "running"

    # Afterwards.
    ends = (running.outcome, running.host_outcome(1, 0))
    with attacker.undone(*ends):
        attacker.copy(older.outcome, ends[0])
        attacker.copy(older.host_outcome(1, 0), ends[1])
        assert isinstance(collected(running.job_id), IntegrityError)
    with attacker.undone(ends[1]):
        forged_report = json.loads(attacker.read(ends[1]))
        inline = base64.b64encode(attacker.evil).decode()
        size, digest = len(attacker.evil), hashlib.sha256(attacker.evil).hexdigest()
        forged_report["value"] = {"size": size, "digest": digest, "inline": inline}
        attacker.write(ends[1], json.dumps(forged_report).encode())
        assert isinstance(collected(running.job_id), IntegrityError)
    with attacker.undone(running.handle):
        attacker.copy(older.handle, running.handle)
        assert isinstance(collected(running.job_id), KineticError)
        record = {**json.loads(attacker.read(running.handle)), "job_id": running.job_id}
        attacker.write(running.handle, json.dumps(record).encode())
        assert isinstance(collected(running.job_id), SignatureError)
    assert collected(running.job_id) == "running"
    for job, phase in ((call, "payload"), (files, "extract")):
        refused = collected(job.job_id)
        assert isinstance(refused, KineticError)
        assert phase in str(refused)
    assert forged in str(refused), "the object to delete"


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
    attacker.write(job.outcome, cancelled(job))
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
