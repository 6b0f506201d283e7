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


def alone(folder: Path) -> dict[str, float]:
    call, end = timed(now)
    floor, floor_end = timed(lambda: Pair(folder, now.__wrapped__).result())
    return {"call": call, "end": end, "floor": floor, "floor_end": floor_end}


def together(folder: Path, count: int) -> dict[str, float]:
    began = time.perf_counter()
    for handle in [now.run_async() for _ in range(count)]:
        handle.result()
    many = time.perf_counter() - began

    folders = [folder / str(number) for number in range(count)]
    for each in folders:
        each.mkdir(exist_ok=True)
    began = time.perf_counter()
    for pair in [Pair(each, now.__wrapped__) for each in folders]:
        pair.result()
    return {"many": many, "floor_many": time.perf_counter() - began}


if __name__ == "__main__":
    began = time.perf_counter()
    now()
    found = {"first": time.perf_counter() - began}
    rounds = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # Not in turns with each other: the clean-up of 20 jobs would slow the next call down.
        found["alone"] = [alone(place) for _ in range(rounds + 1)][1:]
        found["together"] = [together(place, 20) for _ in range(rounds // 3)]
    Path(sys.argv[1]).write_text(json.dumps(found))
