"""Run the tests of `tests/images`, which need a registry and a container engine, or `tests/cluster`: a Kubernetes.

    tiers.py UV images|cluster

Debian's packages that are missing are installed. A cluster that already runs is used, and not stopped. If this
machine cannot have these parts, no test runs; otherwise a test that skips is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from testcloud import VARIABLE, testcloud

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = {"images": "KINETIC_TEST_IMAGES", "cluster": "KINETIC_TEST_CLUSTER"}
"""Tier → the variable by which its tests must not skip."""
PROGRAMS = {"docker-registry": "docker-registry", "dockerd": "docker.io"}
"""Programs → Debian's packages that contain them."""


def obstacle() -> str | None:
    """Return why these tests cannot run on this machine, or None."""
    if testcloud() is None:
        return "this machine has no test cloud (.ci/testcloud.py), which contains the base image"
    if os.geteuid() != 0:
        return "only root can start a container engine or the test cluster"
    if not Path("/etc/debian_version").is_file():
        return "the registry and the engine are packages of Debian, which the test cluster needs as well"
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


def main(uv: str, tier: str) -> int:
    """Run the tests; return pytest's exit code."""
    why, folder = obstacle(), testcloud()
    if why is not None or folder is None:
        print(f"Skipped: {why}.")
        return 0
    install()
    kube = folder / "kube"
    starts = (
        tier == "cluster" and subprocess.call([kube / "status"], stdout=subprocess.DEVNULL) != 0
    )
    try:
        return subprocess.call(
            [uv, "run", "--no-sync", "pytest", "-q", f"tests/{tier}"],
            env={**os.environ, REQUIRED[tier]: "required", VARIABLE: str(folder)},
            cwd=ROOT,
        )
    finally:
        if starts:
            subprocess.call([kube / "down"])


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
