"""A training run that is killed half-way and resumes from its last checkpoint in the next attempt.

    python examples/checkpoints.py

`KINETIC_OUTPUT_DIR` is a folder or `gs://…`; a store accepts both, so the same code works for both. An object
of a store is whole or absent: if a job dies while it saves, the previous checkpoint remains. Checkpoints lie
below the name of the run. With an `output_dir` of your own, jobs share that folder, and a new job with the same
name resumes where an earlier job stopped.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import numpy as np

import kinetic
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location

STEPS = 60
EVERY = 10


def outputs() -> Store:
    """Open the folder for the job's outputs, which is the same in every attempt."""
    return open_store(parse_location(os.environ["KINETIC_OUTPUT_DIR"]))


def save(store: Store, run: str, step: int, weights: np.ndarray) -> None:
    file = io.BytesIO()
    np.savez(file, step=step, weights=weights)
    store.write(f"{run}/{step:06d}.npz", file.getvalue())
    for old in [*store.list(f"{run}/")][:-2]:
        store.delete(old.name)


def restore(store: Store, run: str) -> tuple[int, np.ndarray] | None:
    """Return the newest checkpoint, if an earlier attempt left one."""
    names = [info.name for info in store.list(f"{run}/")]
    if not names:
        return None
    with np.load(io.BytesIO(store.read(names[-1]))) as saved:
        return int(saved["step"]), saved["weights"]


def batches(begin: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield the batch of every step from *begin*: a batch must not depend on where the run began."""
    truth = np.arange(8.0)
    for step in range(begin, STEPS):
        x = np.random.default_rng(step).normal(size=(64, 8))
        yield step, x, x @ truth


@kinetic.run(accelerator="cpu", retries=1)
def train(run: str, die_at: int | None = None) -> dict[str, float]:
    """Fit a linear model; in the first attempt die at a step, as a preempted machine does."""
    store = outputs()
    attempt = int(os.environ["KINETIC_ATTEMPT"])
    found = restore(store, run)
    begin, weights = found if found is not None else (0, np.zeros(8))
    print(f"attempt {attempt} begins at step {begin}", flush=True)
    for step, x, y in batches(begin):
        if attempt == 1 and step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        weights = weights - 0.1 * x.T @ (x @ weights - y) / len(y)
        if (step + 1) % EVERY == 0:
            save(store, run, step + 1, weights)
    loss = float(np.abs(weights - np.arange(8.0)).max())
    return {"began_at": begin, "attempt": attempt, "error": loss}


def main() -> None:
    """Train once without a break and once with one: the result must be the same."""
    whole = train("whole")
    resumed = train("broken", die_at=37)
    print(f"without a break: {whole}\nwith one:        {resumed}")
    assert (resumed["attempt"], resumed["began_at"]) == (2, 30)
    assert resumed["error"] == whole["error"], "resuming must change nothing"


if __name__ == "__main__":
    os.environ.setdefault("KINETIC_BACKEND", "local")
    main()
