"""Run the tests of `tests/images`, which need a registry and a container engine, of `tests/cluster`, which need a
Kubernetes, or of `tests/browser`, which need Chromium.

    tiers.py UV images|cluster|browser

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
REQUIRED = {
    "images": "KINETIC_TEST_IMAGES",
    "cluster": "KINETIC_TEST_CLUSTER",
    "browser": "KINETIC_TEST_BROWSER",
}
"""Tier → the variable by which its tests must not skip."""
ENGINE = {"docker-registry": "docker-registry", "dockerd": "docker.io"}
PROGRAMS = {
    "images": ENGINE,
    "cluster": ENGINE,
    "browser": {"chromium": "chromium", "chromedriver": "chromium-driver"},
}
"""Tier → programs → Debian's packages that contain them."""


def obstacle(tier: str = "cluster") -> str | None:
    """Return why these tests cannot run on this machine, or None."""
    if tier == "browser":
        if not missing(tier):
            return None
    elif testcloud() is None:
        return "this machine has no test cloud (.ci/testcloud.py), which contains the base image"
    if os.geteuid() != 0:
        return "only root can install or start the programs that these tests need"
    if not Path("/etc/debian_version").is_file():
        return "the programs that these tests need are packages of Debian"
    return None


def missing(tier: str) -> list[str]:
    """Return Debian's packages that are missing."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    needed = PROGRAMS[tier].items()
    return [package for program, package in needed if not shutil.which(program, path=path)]


def install(packages: list[str]) -> None:
    """Install *packages*."""
    if not packages:
        return
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if subprocess.call(command, env=environ, stdout=subprocess.DEVNULL) != 0:
        subprocess.check_call(["apt-get", "update", "-qq"], env=environ)
        subprocess.check_call(command, env=environ, stdout=subprocess.DEVNULL)


def main(uv: str, tier: str) -> int:
    """Run the tests; return pytest's exit code."""
    if (why := obstacle(tier)) is not None:
        print(f"Skipped: {why}.")
        return 0
    install(missing(tier))
    folder = testcloud()
    kube = (folder or ROOT) / "kube"
    starts = (
        tier == "cluster" and subprocess.call([kube / "status"], stdout=subprocess.DEVNULL) != 0
    )
    try:
        return subprocess.call(
            [uv, "run", "--no-sync", "pytest", "-q", f"tests/{tier}"],
            env={**os.environ, REQUIRED[tier]: "required", VARIABLE: str(folder or "")},
            cwd=ROOT,
        )
    finally:
        if starts:
            subprocess.call([kube / "down"])


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
