"""Batches: their submit, their collection and their small inputs, against the least that each needs."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Budget, Figure
from measuring import CLIENTS, Bench, bucket_server, write_project

LATENCY = 0.03


def figures(bench: Bench) -> Iterator[Figure]:
    project = write_project(bench.folder / "project", 50)
    large, small = (1000, 200) if bench.quick else (10_000, 1_000)
    rounds = bench.rounds(5, 2)
    with bucket_server(bench, delay=LATENCY) as endpoint:
        bucket = {"STORAGE_EMULATOR_HOST": endpoint, "KINETIC_STORE": "gs://bench-0"}
        found = bench.client(
            "batches", "bucket", rounds, large, small, endpoint, project=project, variables=bucket
        )
        fewer, more = (
            bench.client("batches", "collect", group, CLIENTS, project=project, variables=bucket)
            for group in found["groups"]
        )
    where = f"bucket, {LATENCY * 1000:.0f} ms a request"
    for count, limit, requests in ((100, 0.3, 10), (large, 2.0, 25)):
        submitted = found[f"submit {count}"]
        yield Figure(
            what=f"submit of a batch of {count:,} inputs, {where}",
            samples=[one["seconds"] for one in submitted],
            budgets=(Budget(limit),),
        )
        yield Figure(
            what=f"submit of a batch of {count:,} inputs: requests",
            samples=[one["requests"] for one in submitted],
            unit="",
            budgets=(Budget(requests),),
        )
    yield Figure(
        what=f"results() of {small:,} inputs, {where}",
        samples=found["results"],
        floor="a bare GET of each outcome",
        floor_samples=found["gets"],
        budgets=(Budget(2.0, "ratio"),),
    )
    yield Figure(
        what=f"clean-up of {small:,} inputs after results(), {where}",
        samples=found["clean-up"],
        floor="a bare DELETE of each outcome",
        floor_samples=found["deletes"],
        budgets=(Budget(2.0, "ratio"),),
    )
    yield Figure(
        what=f"statuses() of {large:,} inputs, {where}",
        samples=found["statuses"],
        budgets=(Budget(3.0),),
    )
    yield Figure(
        what=f"peak memory: iter_results() of {large:,} inputs",
        samples=[more],
        floor=f"the same for {small:,} inputs",
        floor_samples=[fewer],
        unit="MB",
        budgets=(Budget(1.5, "ratio"),),
    )
    inputs = 40 if bench.quick else 200
    local = bench.client("batches", "local", bench.rounds(3, 1), inputs, CLIENTS, project=project)
    yield Figure(
        what=f"{inputs} trivial inputs on this machine, all values",
        samples=local["batch"],
        floor="a pool that starts a bare process for each",
        floor_samples=local["pool"],
        budgets=(Budget(2.0, "ratio"),),
    )
