"""Running: from the start of the runner to the user's function, against one bare Python process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Budget, Figure
from measuring import Bench, write_project

from kinetic_payload.layout import JobObjects
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import parse_location

FLOOR = "import cloudpickle, time; print(time.time())"


def figures(bench: Bench) -> Iterator[Figure]:
    project = write_project(bench.folder / "project", 50)
    prepared = bench.client("running", project=project)
    began_at: list[float] = []
    floor: list[float] = []
    for number in range(bench.rounds(20, 5) + 1):
        began = time.time()
        floor.append(float(bench.python("-c", FLOOR).stdout) - began)
        began_at.append(_run(bench, prepared, number + 1))
    yield Figure(
        what="start of the runner → function, 50 files",
        samples=began_at[1:],
        floor="bare python that imports cloudpickle",
        floor_samples=floor[1:],
        budgets=(Budget(2.6, "ratio"),),
    )


def _run(bench: Bench, prepared: dict[str, str], attempt: int) -> float:
    """Run an attempt of the prepared job; return when its function began, after the start."""
    command = [
        *(sys.executable, "-u", prepared["bundle"]),
        *("--store", prepared["store"], "--job", prepared["job"]),
        *("--record-digest", prepared["digest"]),
        *("--workspace", str(bench.folder / f"attempt-{attempt}"), "--attempt", str(attempt)),
    ]
    began = time.time()
    # The parent outlives the function; another figure ("last line … → value") measures how long.
    subprocess.run(
        command, env=bench.environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    # A job that has an outcome would not run again.
    open_store(parse_location(prepared["store"])).delete(JobObjects(prepared["job"]).outcome)
    return float(Path(prepared["time_file"]).read_text()) - began
