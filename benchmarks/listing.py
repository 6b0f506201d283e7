"""`kinetic jobs list` over many finished jobs, against reading their records plainly."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from figures import Budget, Figure
from measuring import Bench, bucket_server, seconds

JOBS = 2_000
LATENCY = 0.03


def figures(bench: Bench) -> Iterator[Figure]:
    yield _figure(bench, "folder", {}, limit=1.0)
    with bucket_server(bench, delay=LATENCY) as endpoint:
        bucket = {"STORAGE_EMULATOR_HOST": endpoint, "KINETIC_STORE": "gs://bench-0"}
        yield _figure(bench, f"bucket, {LATENCY * 1000:.0f} ms a request", bucket, limit=3.0)


def _figure(bench: Bench, where: str, variables: Mapping[str, str], limit: float) -> Figure:
    jobs = 200 if bench.quick else JOBS
    filled = bench.folder / f"filled-{len(variables)}"
    filled.write_text(json.dumps(bench.client("finished", "fill", jobs, variables=variables)))
    listed, floors = [], []
    command = ("-m", "kinetic_cli", "jobs", "list", "--local", "--json")
    for _ in range(bench.rounds(5)):
        floors.append(bench.client("finished", "read", filled, variables=variables)["seconds"])
        listed.append(seconds(lambda: bench.python(*command, variables=variables)))
    return Figure(
        what=f"kinetic jobs list, {jobs:,} finished jobs in a {where}",
        samples=listed,
        floor="reading their records",
        floor_samples=floors,
        budgets=(Budget(limit),),
    )
