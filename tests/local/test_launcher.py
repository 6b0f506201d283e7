"""The runner's bundle in `KINETIC_HOME`, which a launch writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kinetic.backends.local.launch import ensure_bundle
from kinetic.home.paths import Home


def test_a_whole_bundle_is_kept(tmp_path: Path) -> None:
    first, again = (os.stat(ensure_bundle(Home(str(tmp_path)), b"runner")) for _ in range(2))

    assert (again.st_ino, again.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)


_FULL = """
import resource, signal, sys
from kinetic.backends.local.launch import ensure_bundle
from kinetic.home.paths import Home
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    ensure_bundle(Home(sys.argv[1]), b"a runner" * 10_000)
except OSError as error:
    print(error)
"""


def test_a_bundle_that_does_not_fit_on_the_disk_is_not_left_in_part(tmp_path: Path) -> None:
    # A limit on files' sizes cuts a write short as a full disk does.
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert "File too large" in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size] == []
