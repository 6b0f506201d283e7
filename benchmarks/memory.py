"""Memory: the peak of a process that packages or transfers N bytes, against fewer bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from figures import Budget, Figure
from inputs import MB, write_random, write_text
from measuring import Bench


def figures(bench: Bench) -> Iterator[Figure]:
    # Both are larger than all data that a transfer holds in memory at the same time.
    small, large = 100 * MB, (300 if bench.quick else 800) * MB
    for what, write, count in (
        ("2,000 files of text", write_text, 2_000),
        ("one file of text", write_text, 1),
        ("200 files of random bytes", write_random, 200),
    ):
        # Both trees have as many files: memory may grow with the number of files, but not with bytes.
        trees = {
            size: write(bench.folder / f"tree-{size}", size, each=size // count)
            for size in (small, large)
        }
        for action in ("pack", "upload", "download"):
            fewer, more = (_peak(bench, action, trees[size]) for size in (small, large))
            yield Figure(
                what=f"peak memory: {action} {large // MB} MB, {what}",
                samples=[more],
                floor=f"the same for {small // MB} MB",
                floor_samples=[fewer],
                unit="MB",
                budgets=(Budget(1.25, "ratio"),),
            )
        for tree in trees.values():
            shutil.rmtree(tree)
        shutil.rmtree(bench.folder / "store")


def _peak(bench: Bench, action: str, tree: Path) -> float:
    peak: float = bench.client("memory", action, tree, bench.folder / "store")["peak"]
    return peak
