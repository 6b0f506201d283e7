"""The first seconds of a pod, while some of Google's services do not know its identity yet."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import CredentialsError, StorePermissionError
from kinetic_payload.layout import JobObjects
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location
from kinetic_runner.store_retries import retry_in_new_pod
from kinetic_servers.gcs import GcsServer, Tokens

from .conftest import call_header

JOB = "cpu-print-20260101-000000-abcdef0"
ALL = ["objects.get", "objects.list", "objects.create", "objects.delete"]
Start = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def server() -> Iterator[GcsServer]:
    with GcsServer(tokens=Tokens()) as running:
        running.create_bucket("jobs")
        yield running


@pytest.fixture
def run(server: GcsServer, bundle: Path, tmp_path: Path, monkeypatch: Any) -> Start:
    """Run a job whose function prints; the pod has the identity that the metadata server gives it."""
    header = call_header("print", "builtins")
    payload = header.encode() + b"\n" + pickle.dumps((print, ("here I am",), {}))
    server.allow("jobs", {"allUsers": [f"storage.{name}" for name in ALL]})
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.endpoint)
    digest = hashlib.sha256(payload).hexdigest()
    record = json.dumps({"job_id": JOB, "payload_digest": digest}).encode()
    store = open_store(parse_location("gs://jobs"))
    store.write(JobObjects(JOB).payload, payload)
    store.write(JobObjects(JOB).handle, record)
    server.allow("jobs", None)

    def started(*flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-u", str(bundle), "--store", "gs://jobs", "--job", JOB]
        command += ["--record-digest", hashlib.sha256(record).hexdigest()]
        command += ["--workspace", str(tmp_path / "work"), *flags]
        variables = {**server.environment, **server.machine_environment, "HOME": str(tmp_path)}
        path = os.environ["PATH"]  # noqa: TID251 - as in any pod
        return subprocess.run(
            command, env={"PATH": path, **variables}, capture_output=True, text=True
        )

    return started


@pytest.mark.parametrize(
    "fault",
    [
        {"operation": "objects.get.media", "status": 403, "times": 2},
        {"operation": "objects.get.media", "status": 401, "times": 3},
        {"operation": "objects.insert*", "status": 403, "times": 2},
        {"operation": "metadata", "status": 404, "times": 3},
        {"operation": "metadata", "reset": "before", "times": 4},
    ],
    ids=str,
)
def test_a_new_pod_retries_until_its_identity_is_known(
    server: GcsServer, run: Start, fault: dict[str, Any]
) -> None:
    hit = server.faults.add(**fault)

    done = run()

    assert hit.hits >= 2
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("here I am\n")
    assert (done.stdout + done.stderr).count("The pod is new: retrying") == 1
    assert f"{JOB}/outcome.json" in server.names("jobs")


def test_a_runner_with_a_supervisor_does_not_retry_a_refusal(server: GcsServer, run: Start) -> None:
    server.faults.add(operation="objects.get*", status=403)
    read_end, write_end = os.pipe()

    done = run("--lifeline", str(read_end))

    os.close(write_end)
    assert done.returncode == 2
    assert "retrying" not in done.stderr


def test_a_refusal_is_final_after_the_first_seconds() -> None:
    attempts: list[Exception] = []

    def refused() -> None:
        attempts.append(
            StorePermissionError("no") if len(attempts) % 2 else CredentialsError("unknown")
        )
        raise attempts[-1]

    more: Any = {"pause": threading.Event().wait, "warn": lambda text: None}
    for seconds in (0, 1):
        attempts.clear()
        with pytest.raises((CredentialsError, StorePermissionError)):
            retry_in_new_pod(refused, seconds=seconds, **more)
        assert (len(attempts) > 1) is (seconds > 0)
