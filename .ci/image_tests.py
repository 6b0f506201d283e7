"""Run the tests that need a registry and a container engine: Debian's, which the tests start themselves.

    image_tests.py UV

Missing packages are installed. If this machine cannot have them, no test runs; otherwise a test that skips is
a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testcloud import VARIABLE, testcloud

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = "KINETIC_TEST_IMAGES"
PROGRAMS = {"docker-registry": "docker-registry", "dockerd": "docker.io"}
"""Programs → Debian's packages that contain them."""


def obstacle() -> str | None:
    """Return why these tests cannot run on this machine, or None."""
    if testcloud() is None:
        return "this machine has no test cloud (.ci/testcloud.py), which contains the base image"
    if os.geteuid() != 0:
        return "only root can start a container engine"
    if not Path("/etc/debian_version").is_file():
        return "the registry and the engine are packages of Debian"
    return None


def install() -> None:
    """Install the packages that are missing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    missing = [
        package for program, package in PROGRAMS.items() if not shutil.which(program, path=path)
    ]
    if not missing:
        return
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if subprocess.call(command, env=environ, stdout=subprocess.DEVNULL) != 0:
        subprocess.check_call(["apt-get", "update", "-qq"], env=environ)
        subprocess.check_call(command, env=environ, stdout=subprocess.DEVNULL)


def main(uv: str) -> int:
    """Run the tests; return pytest's exit code."""
    why = obstacle()
    if why is not None:
        print(f"Skipped: {why}.")
        return 0
    install()
    return subprocess.call(
        [uv, "run", "--no-sync", "pytest", "-q", "tests/images"],
        env={**os.environ, REQUIRED: "required", VARIABLE: str(testcloud())},
        cwd=ROOT,
    )


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
