"""Figures of a benchmark: each beside its floor, and whether it is within its budget."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "noisy", "over", ""]


@dataclass(frozen=True)
class Budget:
    """The limit of DESIGN §11: a value, a ratio to the floor, or a value above the floor."""

    limit: float
    kind: Literal["value", "above", "ratio", "speed"] = "value"
    """`speed` is the floor's time divided by Kinetic's. It is the only kind where more is better."""

    def text(self, unit: str) -> str:
        if self.kind == "value":
            return f"≤ {self.limit:g} {unit}".rstrip()
        if self.kind == "above":
            return f"≤ floor + {self.limit:g} {unit}".rstrip()
        return f"{'≥' if self.kind == 'speed' else '≤'} {self.limit:g}×"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing measured several times, with its floor measured in turns with it."""

    what: str
    samples: Sequence[float]
    floor: str = ""
    """The name of the floor, in a few words."""
    floor_samples: Sequence[float] = ()
    unit: str = "s"
    budgets: tuple[Budget, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)

    def ratio(self, *, best: bool = False) -> float | None:
        """Return the figure divided by its floor: the medians, or the best rounds."""
        if not self.floor_samples:
            return None
        take = min if best else statistics.median
        floor = take(self.floor_samples)
        return take(self.samples) / floor if floor else None

    @property
    def verdict(self) -> Verdict:
        """Whether every budget is kept.

        `noisy`: kept in the best round but not in the median, so other processes were probably running.
        """
        if not self.budgets:
            return ""
        if all(self._keeps(budget, best=False) for budget in self.budgets):
            return "ok"
        return "noisy" if all(self._keeps(budget, best=True) for budget in self.budgets) else "over"

    def _keeps(self, budget: Budget, *, best: bool) -> bool:
        if budget.kind == "value":
            return (self.best if best else self.median) <= budget.limit
        if budget.kind == "above":
            take = min if best else statistics.median
            return take(self.samples) - take(self.floor_samples) <= budget.limit
        ratio = self.ratio(best=best)
        if ratio is None:
            return False
        return 1 / ratio >= budget.limit if budget.kind == "speed" else ratio <= budget.limit

    def row(self) -> tuple[str, ...]:
        """Return the figure as the cells of a table."""
        shown = f"{_number(self.median)} ({_number(self.best)}) {self.unit}".rstrip()
        floor = ratio = ""
        if self.floor_samples:
            middle = statistics.median(self.floor_samples)
            floor = f"{_number(middle)} ({_number(min(self.floor_samples))}) {self.floor}"
        if (of_medians := self.ratio()) and (of_best := self.ratio(best=True)):
            if any(budget.kind == "speed" for budget in self.budgets):
                of_medians, of_best = 1 / of_medians, 1 / of_best
            ratio = f"{of_medians:.2f} ({of_best:.2f})"
        budgets = ", ".join(budget.text(self.unit) for budget in self.budgets)
        return self.what, shown, floor, ratio, budgets, self.verdict

    def as_json(self) -> dict[str, object]:
        """Return all samples, and the facts derived from them."""
        return {
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "minimum": self.best,
            "samples": list(self.samples),
            "floor": self.floor or None,
            "floor_samples": list(self.floor_samples),
            "ratio": self.ratio(),
            "ratio_of_minima": self.ratio(best=True),
            "budgets": [budget.text(self.unit) for budget in self.budgets],
            "verdict": self.verdict or None,
        }


HEADINGS = ("what", "measured (best)", "floor (best)", "ratio (best)", "budget", "")


def table(rows: Iterable[Sequence[str]]) -> str:
    """Format *rows* as a table of Markdown."""
    rows = [HEADINGS, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
