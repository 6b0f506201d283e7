import os
import subprocess
import sys
from typing import TypeVar

from kinetic.backends.local.limits import (
    MemoryLimit,
    _WatchedLimit,
    limit_memory,
)
from kinetic.testing import eventually

L = TypeVar("L", bound=MemoryLimit)

PARENT = """
import subprocess, sys
body = "x = bytearray(200 << 20); import time; time.sleep(600)"
sys.exit(abs(subprocess.run([sys.executable, "-c", body]).returncode))
"""


def started(limit: L, code: str) -> "tuple[subprocess.Popen[bytes], L]":
    runner = None

    def spawn() -> int:
        nonlocal runner
        runner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        return runner.pid

    limit.start(spawn)
    assert runner is not None
    return runner, limit


def test_a_watched_runner_outlives_the_child_that_is_too_large() -> None:
    runner, watch = started(_WatchedLimit(100 << 20), PARENT)
    assert eventually(watch.exceeded)
    assert runner.wait(60) == 9


def test_a_runner_within_its_limit_is_left_alone() -> None:
    runner, limit = started(limit_memory(f"test-{os.getpid()}", 1 << 30), "input()")
    assert not limit.exceeded()
    runner.communicate(b"\n", timeout=60)
    assert not limit.exceeded()
    assert runner.returncode == 0
    limit.close()
