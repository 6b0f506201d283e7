import os
import subprocess
import sys
from typing import NoReturn, TypeVar

import psutil

from kinetic.backends.local.limits import (
    MemoryLimit,
    _WatchedLimit,
    limit_memory,
    own_memory,
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


def test_memory_that_only_root_may_look_into_counts_as_resident() -> None:
    class Denied(psutil.Process):
        def memory_full_info(self) -> NoReturn:
            raise psutil.AccessDenied(self.pid)

    process = psutil.Process()
    shared = process.memory_info().rss - own_memory(process)

    assert shared > 1 << 20
    assert own_memory(Denied()) > process.memory_info().rss - shared


def test_a_runner_within_its_limit_is_left_alone() -> None:
    runner, limit = started(limit_memory(f"test-{os.getpid()}", 1 << 30), "input()")
    assert not limit.exceeded()
    runner.communicate(b"\n", timeout=60)
    assert not limit.exceeded()
    assert runner.returncode == 0
    limit.close()
