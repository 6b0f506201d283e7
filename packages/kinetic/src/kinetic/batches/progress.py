"""The progress of a batch: a line on a terminal, a few lines in a log, a grid as HTML and as text."""

from __future__ import annotations

import html
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from kinetic.console import is_terminal, write_line
from kinetic.job_status import JobStatus
from kinetic_payload.printable import printable_line
from kinetic_payload.progress import duration_text

if TYPE_CHECKING:
    from types import TracebackType

    from kinetic.batches.states import Look
    from kinetic_payload.records.batch import GroupManifest

_EVERY: Final = 60.0
"""Seconds between two lines where there is no terminal."""
_REDRAW: Final = 0.5
_COLOURS: Final = {
    JobStatus.SUCCEEDED: "#2da44e",
    JobStatus.FAILED: "#cf222e",
    JobStatus.RUNNING: "#0969da",
    JobStatus.PENDING: "#d0d7de",
    JobStatus.NOT_FOUND: "#8c959f",
}
_WORDS: Final = {
    JobStatus.SUCCEEDED: "done",
    JobStatus.RUNNING: "running",
    JobStatus.PENDING: "pending",
    JobStatus.FAILED: "failed",
    JobStatus.NOT_FOUND: "removed",
}
_MOST_CELLS: Final = 10_000
_MARKS: Final = {
    JobStatus.FAILED: "x",
    JobStatus.RUNNING: ">",
    JobStatus.PENDING: ".",
    JobStatus.NOT_FOUND: "-",
    JobStatus.SUCCEEDED: "#",
}
"""The characters of the text grid, in the order in which they decide what stands for several inputs."""
_COLUMNS: Final = 60
_ROWS: Final = 10


def summary(manifest: GroupManifest, look: Look | None) -> str:
    """Return the counts of the inputs by status, as of *look*."""
    title = printable_line(manifest.name or manifest.func_name)
    if look is None:
        return f"{title}, {manifest.total_expected} inputs"
    counts = Counter(look.statuses.values())
    words = _WORDS | ({JobStatus.NOT_FOUND: "collected"} if look.collected else {})
    parts = [f"{counts[status]} {word}" for status, word in words.items() if counts[status]]
    if manifest.failed:
        parts.append(f"{len(manifest.failed)} not submitted")
    return f"{title}, {', '.join(parts)} of {manifest.total_expected}"


def grid(manifest: GroupManifest, look: Look | None, title: str) -> str:
    """Return HTML with a cell for each input, coloured by its status."""
    cells = []
    for index in range(min(manifest.total_expected, _MOST_CELLS)):
        status = None if look is None else look.statuses.get(index)
        word = "not submitted" if status is None else _WORDS[status]
        colour = _COLOURS[JobStatus.FAILED if status is None else status]
        cells.append(
            f'<i title="{index}: {word}" style="display:inline-block;width:10px;height:10px;margin:1px;'
            f'background:{colour}"></i>'
        )
    return f"<div>{html.escape(title)}</div><div style='line-height:0'>{''.join(cells)}</div>"


def text_grid(manifest: GroupManifest, look: Look) -> list[str]:
    """Return lines with a character for each input by its status, or for each few inputs; the last explains them."""
    states, each = cells_of(manifest, look, _COLUMNS * _ROWS)
    cells = "".join(_MARKS[state] for state in states)
    words = ", ".join(
        f"{mark} {_WORDS[status]}" for status, mark in _MARKS.items() if mark in cells
    )
    legend = words if each == 1 else f"{words}; each stands for {each} inputs"
    return [*(cells[at : at + _COLUMNS] for at in range(0, len(cells), _COLUMNS)), legend]


def cells_of(manifest: GroupManifest, look: Look, most: int) -> tuple[list[JobStatus], int]:
    """Return at most *most* statuses, and how many inputs each stands for: the first that one of them has."""
    total = manifest.total_expected
    each = -(-total // most)
    failed = JobStatus.FAILED  # Those that were not submitted count as failed.
    found = [look.statuses.get(index, failed) for index in range(total)]
    order = [*_MARKS]
    firsts = range(0, total, each)
    return [min(found[first : first + each], key=order.index) for first in firsts], each


def pace(rate: float, left: int) -> str:
    """Return how fast inputs end, in inputs a second, and when the *left* ones will have ended; empty if unknown."""
    if rate <= 0 or not left:
        return ""
    shown = f"{rate:.2g}" if rate < 10 else f"{rate:.0f}"
    return f", {shown}/s, about {duration_text(left / rate)} left"


class Progress:
    """Shows how far a batch is while it is awaited: on a terminal in one line, elsewhere in one each minute."""

    def __init__(self, manifest: GroupManifest, *, quiet: bool = False) -> None:
        self._manifest = manifest
        self._quiet = quiet
        self._began = self._shown = time.monotonic()
        self._first: int | None = None
        self._on_terminal = is_terminal(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.hide()

    def hide(self) -> None:
        """Remove the line from the terminal: the caller may print now."""
        if self._on_terminal and self._shown != self._began:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, look: Look) -> None:
        """Show *look*, if it is time."""
        now = time.monotonic()
        done = sum(status.terminal for status in look.statuses.values())
        if self._first is None:
            self._first = done  # What had ended before tells nothing about the rate.
        if self._quiet or now - self._shown < (_REDRAW if self._on_terminal else _EVERY):
            return
        self._shown = now
        rate = (done - self._first) / (now - self._began)
        text = summary(self._manifest, look) + pace(rate, len(look.left))
        if self._on_terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        else:
            write_line(sys.stderr, f"{self._manifest.group_id}: {text}")
