"""Memory: the peak of a process that packages or transfers N bytes, against one eighth of N."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from figures import Budget, Figure
from inputs import MB, write_random, write_text
from measuring import Bench


def figures(bench: Bench) -> Iterator[Figure]:
    large = 160 * MB if bench.quick else 800 * MB
    for what, write, count in (
        ("2,000 files of text", write_text, 2_000),
        ("one file of text", write_text, 1),
        ("200 files of random bytes", write_random, 200),
    ):
        # As many files in both: a list of files may grow with their number, and nothing with bytes.
        trees = {
            size: write(bench.folder / f"tree-{size}", size, each=size // count)
            for size in (large // 8, large)
        }
        for action in ("pack", "upload", "download"):
            small, big = (_peak(bench, action, trees[size]) for size in (large // 8, large))
            yield Figure(
                what=f"peak memory: {action} {large // MB} MB, {what}",
                samples=[big],
                floor=f"the same for {large // 8 // MB} MB",
                floor_samples=[small],
                unit="MB",
                budgets=(Budget(1.25, "ratio"),),
            )
        for tree in trees.values():
            shutil.rmtree(tree)
        shutil.rmtree(bench.folder / "store")


def _peak(bench: Bench, action: str, tree: Path) -> float:
    peak: float = bench.client("memory", action, tree, bench.folder / "store")["peak"]
    return peak
