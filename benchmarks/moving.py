"""Moving data to and from a bucket: many small files with latency, and large ones, against floors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from figures import Budget, Figure
from inputs import MB, write_random
from measuring import Bench, bucket_server, by_name, in_turns, scratch, write_project

LATENCY = 0.03
"""Seconds before the server answers a request: what a bucket in another city takes."""
SMALL_FILES, SMALL_SIZE = 5_000, 4_096
LARGE_FILES = 20


def figures(bench: Bench) -> Iterator[Figure]:
    # Digests of files in memory are not cached, because the times of such files do not show every change.
    with scratch(in_memory=False) as disk:
        yield from _small_files(bench, disk)
    yield from _large_files(bench)
    yield from _submits(bench)


def _small_files(bench: Bench, disk: Path) -> Iterator[Figure]:
    files = 500 if bench.quick else SMALL_FILES
    tree = write_random(disk / "small", files * SMALL_SIZE, each=SMALL_SIZE)
    what = f"{files:,} × 4 KB with {LATENCY * 1000:.0f} ms a request"
    numbers = count()
    with bucket_server(bench, delay=LATENCY) as endpoint:

        def run(action: str) -> float:
            bucket = f"bench-{next(numbers)}"
            place = bench.folder / "place"
            found = bench.client("moving", action, endpoint, bucket, tree, place)
            # Cached digests stay; each round begins with a bucket of its own.
            return float(found["seconds"])

        run("hash")
        samples: dict[str, list[float]] = {"bare": [], "upload-mounted": [], "upload": []}
        for _ in range(bench.rounds(3, 1)):
            for action, taken in samples.items():
                taken.append(run(action))
    packing = in_turns(bench.rounds(3, 1), lambda: _pack(tree))[0]
    yield Figure(
        what=f"upload to be mounted, {what}",
        samples=samples["upload-mounted"],
        floor="a bare HTTP client with 32 threads",
        floor_samples=samples["bare"],
        budgets=(Budget(1.5, "ratio"),),
    )
    yield Figure(
        what=f"upload packed, {what}, beyond packing",
        samples=[max(0.0, each - min(packing)) for each in samples["upload"]],
        floor="a bare HTTP client with 32 threads",
        floor_samples=samples["bare"],
        budgets=(Budget(0.3),),
    )
    shutil.rmtree(bench.folder / "place")


def _pack(tree: Path) -> None:
    from kinetic_payload.project.snapshot import take_snapshot

    with open("/dev/null", "wb") as sink:
        take_snapshot(tree).write(sink)


def _large_files(bench: Bench) -> Iterator[Figure]:
    size = (200 if bench.quick else 1_000) * MB
    tree = write_random(bench.folder / "large", size, each=size // LARGE_FILES)
    what = f"{size // MB:,} MB in {LARGE_FILES} files"
    rounds = bench.rounds(3, 1)
    place = bench.folder / "place"
    up, down, copies, above = [], [], [], []
    with bucket_server(bench) as endpoint:
        for number in range(rounds):
            bucket = f"bench-{number}"
            copies.append(bench.client("copying", tree, bench.folder / "copy")["seconds"])
            for action, taken in (("upload", up), ("download", down)):
                found = bench.client("moving", action, endpoint, bucket, tree, place)
                taken.append(found["seconds"])
                above.append(found["peak"] - found["before"])
            shutil.rmtree(place)
    floor = "a plain socket copy"
    yield Figure(
        what=f"upload of {what}, hashing included",
        samples=up,
        floor=floor,
        floor_samples=copies,
    )
    yield Figure(what=f"download of {what}", samples=down, floor=floor, floor_samples=copies)
    yield Figure(
        what=f"memory above the loaded client, {what} up or down",
        samples=[max(above)],
        unit="MB",
        budgets=(Budget(80),),
    )
    shutil.rmtree(tree)


def _submits(bench: Bench) -> Iterator[Figure]:
    files = 500 if bench.quick else 5_000
    project = write_project(bench.folder / "project", files)
    with bucket_server(bench, delay=LATENCY) as endpoint:
        found = bench.client("submitting_to_bucket", endpoint, bench.rounds(5), project=project)
    rounds = by_name(found["rounds"])
    what = f"submit of {files:,} unchanged files to a bucket"
    yield Figure(
        what=f"{what}, {LATENCY * 1000:.0f} ms a request",
        samples=rounds["submit"],
        floor="scandir and stat of the same tree",
        floor_samples=rounds["floor"],
    )
    yield Figure(
        what=f"{what}: requests",
        samples=rounds["requests"],
        unit="",
        budgets=(Budget(6),),
    )
    yield Figure(what=f"{what}: bytes sent", samples=rounds["bytes"], unit="B")
    yield Figure(
        what=f"{what}: bytes of the context",
        samples=rounds["context_bytes"],
        unit="B",
        budgets=(Budget(0),),
    )
