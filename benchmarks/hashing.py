"""Hashing: `Data.content_hash`, against SHA-256 of the same files on all cores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from figures import Budget, Figure
from inputs import MB, write_random
from measuring import Bench, in_turns

from kinetic_payload.project.hashing import content_hash
from kinetic_payload.threads import cores


def figures(bench: Bench) -> Iterator[Figure]:
    size = 200 * MB if bench.quick else 1000 * MB
    for count in (20, 1):
        data = write_random(bench.folder / f"data-{count}", size, each=size // count)
        files = [path for path in data.rglob("*") if path.is_file()]
        floor, ours = in_turns(
            bench.rounds(7), partial(_sha256, files), partial(content_hash, data)
        )
        yield Figure(
            what=f"hash of {size // MB:,} MB of Data in {count} file{'s'[: count - 1]}",
            samples=ours,
            floor=f"sha256 of them, {cores()} threads",
            floor_samples=floor,
            budgets=(Budget(0.8, "speed"),),
        )


def _sha256(files: list[Path]) -> None:
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(_file, files))


def _file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
