"""Packaging: a tree into an archive, against `tar | zstd -1 -T0`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from figures import Budget, Figure
from inputs import MB, write_random, write_text
from measuring import Bench, in_turns

from kinetic_payload.project.snapshot import take_snapshot


def figures(bench: Bench) -> Iterator[Figure]:
    scale = 10 if bench.quick else 1
    text = write_text(bench.folder / "text", 500 * MB // scale, each=100_000)
    yield from _tree(bench, f"{500 // scale} MB of text", text)
    shutil.rmtree(text)
    large = write_text(bench.folder / "large", 500 * MB // scale, each=500 * MB // scale)
    yield from _tree(bench, f"{500 // scale} MB of text in one file", large)
    shutil.rmtree(large)
    noise = write_random(bench.folder / "random", 1000 * MB // scale, each=1 * MB)
    yield from _tree(bench, f"{1000 // scale} MB of random bytes", noise)


def _tree(bench: Bench, what: str, root: Path) -> Iterator[Figure]:
    snapshot = take_snapshot(root)
    archive, archived, tarred = (bench.folder / name for name in ("new.zip", "known.zip", "tar"))
    floor, command = _floor(root, tarred)

    def pack() -> None:
        with archived.open("wb") as stream:
            snapshot.write(stream)

    def all_of_it() -> None:
        with archive.open("wb") as stream:
            take_snapshot(root).write(stream)

    tar, packed, whole = in_turns(
        bench.rounds(5), lambda: subprocess.run(command, shell=True, check=True), pack, all_of_it
    )
    ratio = archived.stat().st_size / tarred.stat().st_size
    yield Figure(
        what=f"packaging {what} ({ratio:.2f}× the size of its floor)",
        samples=packed,
        floor=floor,
        floor_samples=tar,
        budgets=(Budget(1, "ratio"),),
    )
    yield Figure(
        what=f"the same, digests unknown: {what}",
        samples=whole,
        floor=floor,
        floor_samples=tar,
    )


def _floor(root: Path, target: Path) -> tuple[str, str]:
    """Return the name and the command of the floor that this machine has."""
    if shutil.which("zstd"):
        return "tar | zstd -1 -T0", f"tar -C '{root}' -c . | zstd -q -1 -T0 -c > '{target}'"
    return "tar | gzip -1 (no zstd here)", f"tar -C '{root}' -c . | gzip -1 -c > '{target}'"
