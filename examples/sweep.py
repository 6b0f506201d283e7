"""A sweep: one function over 20 settings, as one batch, and a table of the results.

    python examples/sweep.py

Stop it with Ctrl-C: the batch goes on. `python examples/sweep.py grp-…`, with the id that it printed, collects the same
batch later, from any process.
"""

from __future__ import annotations

import os
import sys
from itertools import product
from pathlib import Path

import numpy as np

import kinetic

SETTINGS = [
    {"degree": degree, "ridge": ridge}
    for degree, ridge in product((1, 3, 6, 9, 14), (0.0, 1e-6, 1e-3, 1.0))
]


@kinetic.run(accelerator="cpu")
def fit(degree: int, ridge: float, *, points: int, seed: int) -> tuple[float, float]:
    """Fit a polynomial to noisy points of a sine; return its errors there and at points that it has not seen."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, 2 * points)
    y = np.sin(3 * x) + random.normal(0, 0.2, x.size)
    powers = x[:, None] ** np.arange(degree + 1)
    seen, unseen = slice(0, points), slice(points, None)
    penalty = ridge * np.eye(degree + 1)
    weights = np.linalg.solve(powers[seen].T @ powers[seen] + penalty, powers[seen].T @ y[seen])
    errors = (powers @ weights - y) ** 2
    return float(errors[seen].mean()), float(errors[unseen].mean())


def main() -> None:
    """Submit the sweep, or find it again; wait, and print the settings, the best ones first."""
    if sys.argv[1:]:
        batch = kinetic.attach_batch(sys.argv[1])
    else:
        batch = fit.run_async_map(SETTINGS, common={"points": 20, "seed": 7}, name="sweep")
        print(f"submitted {batch.group_id}", flush=True)
    rows = sorted(zip(batch.results(), SETTINGS, strict=True), key=lambda row: row[0][1])
    print("degree    ridge  error (seen)  error (unseen)")
    for (seen, unseen), setting in rows:
        print(f"{setting['degree']:6}  {setting['ridge']:7g}  {seen:12.4f}  {unseen:14.4f}")


if __name__ == "__main__":
    os.environ.setdefault("KINETIC_BACKEND", "local")
    # Each input gets a fresh copy of the project: here it is this folder, not the whole repository.
    os.environ.setdefault("KINETIC_PACKAGE_ROOT", str(Path(__file__).parent))
    main()
