"""A script as a job on a real cluster, commands in its pod, and its replay on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import secrets
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pods
import pytest

SCRIPT = """
import os, sys
from gates import gate
print("up", os.environ["RATE"], flush=True)
if "HERE" not in os.environ:
    gate(os.environ["GATE"])
sys.exit(int(sys.argv[1]))
"""
KINETIC = (sys.executable, "-m", "kinetic_cli", "jobs")


@pytest.fixture
def running(project: Any) -> Iterator[str]:
    """The id of a script's job that waits at a gate."""
    (project.root / "wait.py").write_text(SCRIPT)
    where = ("--accelerator", "cpu", "--container-image", project.image, "--memory", "256Mi")
    more = ("--pod-overrides", json.dumps(pods.small()), "--capture-env-vars", "RATE")
    more = (
        *more,
        "--capture-env-vars",
        "STORAGE_EMULATOR_HOST",
        "--capture-env-vars",
        "HERE",
        "--capture-env-vars",
        "GATE",
    )
    # Gates stay open, and the tests share them.
    project.variables |= {"RATE": "7", "GATE": f"exec-{secrets.token_hex(4)}"}
    job_id = project.kinetic("run", "--detach", *where, *more, "wait.py", "3").strip()
    project.await_gate(project.variables["GATE"])
    yield job_id
    project.kinetic("jobs", "cleanup", job_id)


def test_a_command_in_a_pod_has_its_streams_and_its_exit_code(project: Any, running: str) -> None:
    data = hashlib.shake_128(b"data").digest(3 << 20)
    script = "sha256sum; ls; echo $RATE; echo no >&2; test -z $KINETIC_SIGNING_KEY && exit 5"

    asked = subprocess.run(
        [*KINETIC, "exec", running, "--", "sh", "-c", script],
        cwd=project.root, env=project.environment, input=data, capture_output=True, check=False,
    )  # fmt: skip

    digest, *names, rate = asked.stdout.decode().splitlines()
    assert digest.split()[0] == hashlib.sha256(data).hexdigest(), asked
    assert {"wait.py", "gates.py"} <= set(names)
    assert (rate, asked.stderr, asked.returncode) == ("7", b"no\n", 5)
    absent = project.run(*KINETIC[1:], "exec", running, "--", "no-such")
    assert "no-such: No such file" in absent.stderr
    assert absent.returncode == 127


def test_a_shell_in_a_pod_has_this_terminal_and_its_size(project: Any, running: str) -> None:
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    shell = subprocess.Popen(
        [*KINETIC, "shell", running],
        cwd=project.root, env=project.environment, stdin=its, stdout=its, stderr=its,
        start_new_session=True,
    )  # fmt: skip
    os.close(its)
    os.write(ours, b"sleep 1; echo rate=$RATE; stty size; exit 4\n")
    shown = b""
    with suppress(OSError):  # The end of a terminal.
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    assert shell.wait() == 4, shown
    assert b"rate=7\r\n" in shown
    assert b"33 77\r\n" in shown


def test_a_job_of_a_cluster_is_replayed_on_this_machine(project: Any, running: str) -> None:
    project.pass_gate(project.variables["GATE"])
    ended = project.run(*KINETIC[1:], "result", running)
    assert "The function called sys.exit(3)" in ended.stderr
    before = project.kept(running)

    again = project.run(*KINETIC[1:], "replay", running, HERE="1", RATE="8")

    assert "up 8\n" in again.stdout, again.stderr
    assert "sys.exit(3)" in again.stderr
    assert project.kept(running) == before
