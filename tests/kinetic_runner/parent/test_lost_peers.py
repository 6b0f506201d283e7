"""Hosts of a slice without a supervisor, as on a cluster: which one lost another, with the real JAX."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from kinetic_payload.calls.call import CallHeader
from kinetic_payload.layout import Env

pytestmark = [
    pytest.mark.slow,  # two processes import JAX
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
]

PARENT = """
import sys
from kinetic_runner.parent.main import run_with
child = "import sys; from kinetic_runner.child.main import run_child; run_child(sys.argv)"
run_with([sys.executable, "-u", "-c", child], sys.argv[1:])
"""


class Slice:
    """A job of two hosts in a folder."""

    def __init__(self, folder: Path, record_digest: str) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.digest = record_digest
        self.hosts: list[subprocess.Popen[bytes]] = []
        self.port = socket.socket()  # While it is bound, only JAX, which shares ports, gets it.
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.port.bind(("127.0.0.1", 0))

    def start(self, host: int, grace: str) -> None:
        flags = ["--store", str(self.store), "--job", "job", "--record-digest", self.digest]
        flags += ["--workspace", str(self.folder / f"workspace-{host}"), "--grace", grace]
        environment = {
            **os.environ,  # noqa: TID251
            Env.HOST_INDEX: str(host),
            Env.RESTART_ATTEMPT: "0",
            Env.COORDINATOR: f"127.0.0.1:{self.port.getsockname()[1]}",
            "JAX_PLATFORMS": "cpu",
        }
        command = [sys.executable, "-u", "-c", PARENT, *flags]
        with (self.folder / f"log-{host}").open("wb") as log:
            self.hosts.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def read(self, name: str) -> dict[str, Any] | None:
        path = self.store / "job" / name
        return json.loads(path.read_bytes()) if path.exists() else None

    def report(self, host: int) -> dict[str, Any] | None:
        return self.read(f"attempts/1/host-{host}.json")

    @property
    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("log-*")))


@pytest.fixture
def slice_of(
    tmp_path: Path, header_of: Callable[..., CallHeader], stored_call: Callable[..., str]
) -> Any:
    made = []

    def make(function: Any) -> Slice:
        call = (tmp_path / "store", header_of(), function, str(tmp_path))
        made.append(Slice(tmp_path, stored_call(*call, hosts=2, workload="JobSet")))
        return made[-1]

    yield make
    for one in made:
        one.port.close()
        for process in one.hosts:
            process.kill()
            process.wait()


def joined(folder: str) -> int:
    import os
    from pathlib import Path

    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices("joined")
    host = int(os.environ["KINETIC_HOST_INDEX"])  # noqa: TID251
    Path(folder, f"joined-{host}").touch()
    return host


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def sleep(folder: str) -> None:
    import time

    joined(folder)
    time.sleep(600)  # noqa: TID251


def leader_dies(folder: str) -> None:
    import os
    import signal
    import time

    if joined(folder) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)  # noqa: TID251


def test_a_survivor_of_a_preemption_waits_to_be_stopped_and_does_not_fail_the_job(
    slice_of, wait_until
):
    job = slice_of(sleep)
    job.start(0, "2")
    job.start(1, "600")
    wait_until(lambda: len(list(job.folder.glob("joined-*"))) == 2)

    job.hosts[0].send_signal(signal.SIGTERM)
    assert job.hosts[0].wait(300) == 143
    wait_until(lambda: job.report(1))

    assert job.report(0)["reason"] == "terminated"
    assert job.report(1)["lost_peer"], job.logs
    assert job.hosts[1].poll() is None
    job.hosts[1].send_signal(signal.SIGTERM)
    assert job.hosts[1].wait(300) == 143
    assert job.read("outcome.json") is None
    stored = b"".join(path.read_bytes() for path in sorted(job.store.glob("logs/job/1/host-1/*")))
    for log in (job.logs, stored.decode()):
        assert "waiting to be stopped, for up to 615 s" in log


def test_a_crash_decides_the_outcome_and_its_survivor_does_not(slice_of, wait_until):
    job = slice_of(leader_dies)
    job.start(0, "2")
    job.start(1, "600")

    assert job.hosts[0].wait(300) == 137
    wait_until(lambda: job.report(1))

    assert job.report(1)["lost_peer"], job.logs
    assert job.hosts[1].poll() is None
    job.hosts[1].send_signal(signal.SIGTERM)
    assert job.hosts[1].wait(300) == 143
    outcome = job.read("outcome.json")
    assert (outcome["status"], outcome["host"]) == ("failed", 0)
    assert "SIGKILL" in outcome["message"]
