"""Hosts of a slice without a supervisor, as on a cluster: one loses another, with the real JAX."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kinetic_payload.layout import Env

pytestmark = [
    pytest.mark.slow,  # two processes import JAX
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
]

BODY = """
from kinetic_runner.child.distributed import Slice, prepare
prepare(Slice({address!r}, 2, task.host))
import jax
from jax.experimental import multihost_utils
multihost_utils.sync_global_devices("joined")
open({folder!r} + f"/joined-{{task.host}}", "w").close()
time.sleep(600)
"""


@pytest.fixture
def address() -> Iterator[str]:
    """An address that, while it is bound, only JAX gets, which shares ports."""
    with socket.socket() as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        port.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{port.getsockname()[1]}"


def test_a_survivor_of_a_preemption_waits_to_be_stopped_and_does_not_fail_the_job(
    runner: Any, address: str, wait_until: Any
) -> None:
    def start(host: int, grace: str) -> subprocess.Popen[bytes]:
        own = {Env.HOST_INDEX: str(host), Env.RESTART_ATTEMPT: "0", "JAX_PLATFORMS": "cpu"}
        environment = {**os.environ, **own}  # noqa: TID251
        body = BODY.format(address=address, folder=str(runner.folder))
        record = {"hosts": 2, "workload": "JobSet"}
        process: subprocess.Popen[bytes] = runner.start(
            body, "--grace", grace, env=environment, **record
        )
        return process

    def report(host: int) -> Any:
        return runner.read(f"job/attempts/1/host-{host}.json")

    leader, survivor = start(0, "2"), start(1, "600")
    wait_until(lambda: len(list(runner.folder.glob("joined-*"))) == 2)

    leader.send_signal(signal.SIGTERM)
    assert leader.wait(300) == 143
    wait_until(lambda: report(1))

    assert report(0)["reason"] == "terminated"
    assert report(1)["lost_peer"], report(1)
    assert survivor.poll() is None
    survivor.send_signal(signal.SIGTERM)
    done = runner.finish(survivor, host=1)
    assert (done.code, done.final) == (143, None)
    assert b"waiting to be stopped, for up to 615 s" in done.log
