"""A sweep: one function over 20 settings, as one batch, with a table and a picture of the results.

    python examples/sweep.py

Stop it with Ctrl-C: the batch goes on. `python examples/sweep.py grp-…`, with the id that it printed, collects the same
batch later, from any process. It needs scikit-learn.
"""

from __future__ import annotations

import os
import sys
from itertools import product
from pathlib import Path

import kinetic

PENALTIES = (0.1, 1.0, 10.0, 100.0)
WIDTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
SETTINGS = [{"penalty": penalty, "width": width} for penalty, width in product(PENALTIES, WIDTHS)]
PICTURE = Path("sweep.svg")


@kinetic.run(accelerator="cpu")
def score(penalty: float, width: float, *, folds: int) -> float:
    """Return how many handwritten digits that it has not seen a support vector machine recognizes, as a share."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    images, digits = load_digits(return_X_y=True)
    machine = SVC(C=penalty, gamma=width)
    return float(cross_val_score(machine, images, digits, cv=folds).mean())


def picture(scores: list[float]) -> str:
    """Return an SVG with a square for each setting, the darker the better."""
    squares = [
        f'<rect x="{60 * column}" y="{60 * row}" width="58" height="58" fill="#0969da" '
        f'opacity="{share:.3f}"><title>{setting}: {share:.3f}</title></rect>'
        for share, setting, (row, column) in zip(
            scores, SETTINGS, product(range(len(PENALTIES)), range(len(WIDTHS))), strict=True
        )
    ]
    size = f'width="{60 * len(WIDTHS)}" height="{60 * len(PENALTIES)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(squares)}</svg>\n'


def main() -> None:
    """Submit the sweep, or find it again; wait, print the settings, the best ones first, and draw them."""
    if sys.argv[1:]:
        batch = kinetic.attach_batch(sys.argv[1])
    else:
        batch = score.run_async_map(SETTINGS, common={"folds": 3}, name="sweep", inputs_per_pod=5)
        print(f"submitted {batch.group_id}", flush=True)
    scores = batch.results()
    print("penalty   width  score")
    for share, setting in sorted(zip(scores, SETTINGS, strict=True), key=lambda row: -row[0]):
        print(f"{setting['penalty']:7g} {setting['width']:7g}  {share:.4f}")
    PICTURE.write_text(picture(scores), encoding="utf-8")
    print(f"drawn in {PICTURE.absolute()}")


if __name__ == "__main__":
    os.environ.setdefault("KINETIC_BACKEND", "local")
    # Each input gets a fresh copy of the project: here it is this folder, not the whole repository.
    os.environ.setdefault("KINETIC_PACKAGE_ROOT", str(Path(__file__).parent))
    main()
