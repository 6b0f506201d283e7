"""Calling: the local backend from the call to the value, against a bare pair of Python processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from figures import Budget, Figure
from measuring import CLIENTS, Bench, by_name, write_project

FILES = 50


def figures(bench: Bench) -> Iterator[Figure]:
    project = write_project(bench.folder / "project", FILES)

    def client(rounds: int) -> Any:
        return bench.client("calling", rounds, CLIENTS, project=project)

    client(0)  # Makes the runner's bundle, and the bytecode of all modules.
    firsts = [client(0)["first"] for _ in range(bench.rounds(7))]
    all_found = client(bench.rounds(21, 6))
    found = by_name(all_found["alone"]) | by_name(all_found["together"])
    floor = "bare pair of Python processes"
    yield Figure(
        what=f"local call → value, {FILES} files",
        samples=found["call"],
        floor=floor,
        floor_samples=found["floor"],
        budgets=(Budget(0.2), Budget(1.7, "ratio")),
    )
    yield Figure(
        what="the same, the first call of a process",
        samples=firsts,
        floor=floor,
        floor_samples=found["floor"],
    )
    yield Figure(
        what="last line of the function → value",
        samples=found["end"],
        floor=floor,
        floor_samples=found["floor_end"],
        budgets=(Budget(0.3),),
    )
    yield Figure(
        what="20 calls at once, all values",
        samples=found["many"],
        floor="20 bare pairs at once",
        floor_samples=found["floor_many"],
        budgets=(Budget(2.2, "ratio"),),
    )
