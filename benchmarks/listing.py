"""`kinetic jobs list` and `kinetic dashboard` over many finished jobs, against reading their records plainly."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping

from figures import Budget, Figure
from measuring import Bench, bucket_server, seconds

JOBS = 2_000
LATENCY = 0.03
PAGES = 10
"""Requests: two names for each job, a thousand names on a page, and some for parts without jobs."""


def figures(bench: Bench) -> Iterator[Figure]:
    yield _figure(bench, "folder", {}, limit=1.0)
    yield Figure(
        what=f"kinetic dashboard, first page of {_jobs(bench):,} finished jobs in a folder",
        samples=[_first_page(bench) for _ in range(bench.rounds(5))],
        budgets=(Budget(1.0),),
    )
    with bucket_server(bench, delay=LATENCY) as endpoint:
        bucket = {"STORAGE_EMULATOR_HOST": endpoint, "KINETIC_STORE": "gs://bench-0"}
        yield _figure(bench, f"bucket, {LATENCY * 1000:.0f} ms a request", bucket, limit=3.0)
        _server(endpoint, "DELETE")
        _list(bench, bucket)
        yield Figure(
            what=f"kinetic jobs list, {_jobs(bench):,} finished jobs in a bucket: requests",
            samples=[len(json.loads(_server(endpoint, "GET")))],
            unit="",
            budgets=(Budget(PAGES),),
        )


def _figure(bench: Bench, where: str, variables: Mapping[str, str], limit: float) -> Figure:
    filled = bench.folder / f"filled-{len(variables)}"
    found = bench.client("finished", "fill", _jobs(bench), variables=variables)
    filled.write_text(json.dumps(found))
    listed, floors = [], []
    for _ in range(bench.rounds(5)):
        floors.append(bench.client("finished", "read", filled, variables=variables)["seconds"])
        listed.append(_list(bench, variables))
    return Figure(
        what=f"kinetic jobs list, {_jobs(bench):,} finished jobs in a {where}",
        samples=listed,
        floor="reading their records",
        floor_samples=floors,
        budgets=(Budget(limit),),
    )


def _jobs(bench: Bench) -> int:
    return 200 if bench.quick else JOBS


def _list(bench: Bench, variables: Mapping[str, str]) -> float:
    command = ("-m", "kinetic_cli", "jobs", "list", "--local", "--json")
    return seconds(lambda: bench.python(*command, variables=variables))


def _first_page(bench: Bench) -> float:
    """Return how long after its start `kinetic dashboard` shows the newest jobs."""
    command = [sys.executable, "-m", "kinetic_cli", "dashboard", "--no-browser", "--port", "0"]
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=bench.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as dashboard:
        assert dashboard.stdout is not None
        address = dashboard.stdout.readline().strip()
        while "Looking…" in urllib.request.urlopen(address).read().decode():
            pass  # Each page waits for a while.
        took = time.perf_counter() - began
        dashboard.terminate()
    return took


def _server(endpoint: str, method: str) -> bytes:
    request = urllib.request.Request(f"{endpoint}/_kinetic/requests", method=method)
    with urllib.request.urlopen(request) as answer:
        return bytes(answer.read())
