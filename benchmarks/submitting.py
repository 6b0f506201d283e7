"""Submitting: an unchanged tree of 5,000 files, against listing it and calling `stat` for every file; a changed line."""

from __future__ import annotations

import os
from collections.abc import Iterator

from figures import Budget, Figure
from measuring import Bench, by_name, write_project

FILES = 5_000


def figures(bench: Bench) -> Iterator[Figure]:
    project = write_project(bench.folder / "project", FILES)
    bench.client("submitting", 0, project=project)  # Uploads the tree, caches its digests.
    warm = bench.client("submitting", bench.rounds(10), project=project)
    firsts = [bench.client("submitting", 0, project=project) for _ in range(bench.rounds(5))]
    found = by_name(warm["rounds"])
    floor = "scandir and stat of the same tree"
    yield Figure(
        what=f"submit, {FILES:,} files unchanged",
        samples=found["submit"],
        floor=floor,
        floor_samples=found["floor"],
        budgets=(Budget(0.10),),
    )
    yield Figure(
        what="the same, the first submit of a process",
        samples=[each["first"] for each in firsts],
        floor=floor,
        floor_samples=found["floor"],
        budgets=(Budget(0.2),),
    )
    yield Figure(
        what="requests to the store of such a submit",
        samples=[len(warm["requests"])],
        unit="",
        budgets=(Budget(6),),
    )
    yield Figure(
        what="writes of the project's snapshot by such a submit",
        samples=[warm["context_writes"]],
        unit="",
        budgets=(Budget(0),),
    )
    for what, count, rest in (
        ("5,000 files of 20 kB", FILES, 0),
        ("500 files of 20 kB, one of 90 MB", 500, 90_000_000),
    ):
        project = write_project(bench.folder / f"large-{count}", 2)
        for number in range(count):
            path = project / f"data_{number // 100}" / f"{number}.bin"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(20_000))
        (project / "changed.txt").write_text("a line\n" * 100)
        (project / "large.bin").write_bytes(os.urandom(rest))
        found = bench.client("changing", 0, project=project)
        whole = f"a project of 100 MB, {what}"
        yield Figure(
            what=f"one changed line in {whole}: bytes uploaded",
            samples=[found["bytes"]],
            unit="B",
            budgets=(Budget(2_000_000),),
        )
        yield Figure(what=f"objects of {whole}", samples=[found["objects"]], unit="")
