"""Finding `Data` wherever pickle reaches, against pickling alone."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Budget, Figure
from measuring import Bench, by_name, write_project


def figures(bench: Bench) -> Iterator[Figure]:
    count = 10**6 if bench.quick else 10**7
    project = write_project(bench.folder / "project", 2)
    found = by_name(bench.client("finding", bench.rounds(9), count, project=project))
    yield Figure(
        what=f"finding Data in a list of {count:,} integers",
        samples=found["dump"],
        floor="cloudpickle.dumps of the list",
        floor_samples=found["floor"],
        budgets=(Budget(1.1, "ratio"),),
    )
