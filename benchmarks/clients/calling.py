"""A user's script that calls a trivial function, again and again; the floor in turns with it."""

import json
import sys
import tempfile
import time
from pathlib import Path

import kinetic

sys.path.append(sys.argv[3])
from bare import Pair


@kinetic.run(accelerator="cpu")
def now() -> float:
    return time.time()


def timed(call):
    """Return how long *call* took, and how long after the function's last line it returned."""
    began = time.perf_counter()
    ended = call()
    return time.perf_counter() - began, time.time() - ended


def one_round(folder: Path, together: int) -> dict[str, float]:
    call, end = timed(now)
    floor, floor_end = timed(lambda: Pair(folder, now.__wrapped__).result())

    began = time.perf_counter()
    for handle in [now.run_async() for _ in range(together)]:
        handle.result()
    many = time.perf_counter() - began

    folders = [folder / str(number) for number in range(together)]
    for each in folders:
        each.mkdir(exist_ok=True)
    began = time.perf_counter()
    for pair in [Pair(each, now.__wrapped__) for each in folders]:
        pair.result()
    floor_many = time.perf_counter() - began
    return {
        "call": call,
        "end": end,
        "floor": floor,
        "floor_end": floor_end,
        "many": many,
        "floor_many": floor_many,
    }


if __name__ == "__main__":
    began = time.perf_counter()
    now()
    first = time.perf_counter() - began
    rounds, together = int(sys.argv[2]), 20
    with tempfile.TemporaryDirectory() as folder:
        one_round(Path(folder), together)
        found = [one_round(Path(folder), together) for _ in range(rounds)]
    Path(sys.argv[1]).write_text(json.dumps({"first": first, "rounds": found}))
