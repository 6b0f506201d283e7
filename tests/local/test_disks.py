"""Disks that fill up while a job runs: reported first, with advice, and no value is lost."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def on_a_small_disk(project, where: Path, *args: str, script: str) -> str:
    """Run *script* where a disk of 3 MB lies at *where*, and return what it printed."""
    where.mkdir(exist_ok=True)
    mount = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=3m,mode=700 none "$0" && exec "$@"',
    ]
    if (
        not shutil.which("unshare")
        or subprocess.run([*mount, str(where), "true"], capture_output=True).returncode
    ):
        pytest.skip("no private mounts here")
    store = {"KINETIC_STORE": str(where)} if where != project.home else {}
    done = subprocess.run(
        [*mount, str(where), sys.executable, script, *args],
        cwd=project.root,
        env={**project.environment, **store, "FULL": str(where)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("disk", "how"), [("home", "kill"), ("home", "raise"), ("store", "return")]
)
def test_a_disk_that_fills_up_under_a_job_is_reported_first_and_no_end_is_lost(
    project, disk: str, how: str
) -> None:
    where = project.home if disk == "home" else project.root.parent / "store"

    project.copy("full_disk.py")

    shown = on_a_small_disk(project, where, how, script="full_disk.py")

    first = f"The disk of {where} is full: 0 MiB of 3 MiB are free. Make room there"
    assert f"status: {first}" in shown
    assert first in shown.partition("list:")[2].partition("result:")[0]
    assert first in shown.partition("result:")[2]
    assert "supervisor died" not in shown
    assert {
        "return": "whole True 200000",
        "raise": "No space left on device",
        "kill": "SIGKILL",
    }[how] in shown.splitlines()[-1 if how == "return" else -2] + shown.splitlines()[-1]


def test_a_value_that_is_too_large_for_the_disk_waits_for_room(project) -> None:
    project.copy("full_disk.py")

    shown = on_a_small_disk(project, project.home, "value", script="full_disk.py")

    assert "no space is left on the disk" in shown.partition("result:")[0]
    assert "whole True 4000000" in shown


def test_a_state_can_be_replaced_on_a_full_disk(project) -> None:
    project.write(
        "main.py",
        """
        import os
        from kinetic.backends.local.supervisor.state import read_state, write_state

        path = os.environ["FULL"] + "/state.json"
        for words in ("first", "a longer second one", "third"):
            state = {"status": "running", "reason": words, "attempts": []}
            write_state(path, state)
            print(read_state(path) == state)
            try:
                with open(os.environ["FULL"] + "/filler", "ab", buffering=0) as filler:
                    while True:
                        filler.write(bytes(4096))
            except OSError as error:
                print(error.strerror)
        """,
    )

    shown = on_a_small_disk(project, project.home, script="main.py")

    assert shown.splitlines() == ["True", "No space left on device"] * 3
