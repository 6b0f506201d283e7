"""Run the tests that need a Kubernetes: start the test cluster, run tests/cluster on it, stop it.

    cluster_tests.py UV

If this machine cannot start a cluster, no test runs. Otherwise a test that skips is a failure, and
docker is installed if it is missing. A cluster that already runs is used, and not stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from image_tests import install
from testcloud import testcloud

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = "KINETIC_TEST_CLUSTER"


def obstacle() -> str | None:
    """Return why no cluster can be started on this machine, or None."""
    if testcloud() is None:
        return "this machine has no test cloud (.ci/testcloud.py)"
    if os.geteuid() != 0:
        return "only root can start the test cluster"
    if not Path("/etc/debian_version").is_file():
        return "the test cluster needs Debian"
    return None


def main(uv: str) -> int:
    """Run the tests; return pytest's exit code."""
    why = obstacle()
    if why is not None:
        print(f"Skipped: {why}.")
        return 0
    folder = testcloud()
    assert folder is not None
    install()
    kube = folder / "kube"
    status = subprocess.run([kube / "status"], capture_output=True, check=False)
    was_running = status.returncode == 0
    try:
        return subprocess.call(
            [uv, "run", "--no-sync", "pytest", "-q", "tests/cluster"],
            env={**os.environ, REQUIRED: "required"},
            cwd=ROOT,
        )
    finally:
        if not was_running:
            subprocess.run([kube / "down"], check=False)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
