"""Warnings that point at the line of the user that called Kinetic, or that a program reports itself."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kinetic_payload.printable import printable

_report: Callable[[str], None] | None = None


@contextmanager
def reported_to(report: Callable[[str], None]) -> Iterator[None]:
    """Within the block, in all threads, pass each text to *report*, once, instead of warning."""
    global _report
    reported: set[str] = set()

    def report_once(text: str) -> None:
        if text not in reported:
            reported.add(text)
            report(text)

    before, _report = _report, report_once
    try:
        yield
    finally:
        _report = before


def warn_caller(text: str) -> None:
    """Warn at the line of user code that called Kinetic; escape control characters."""
    if _report is not None:
        _report(printable(text))
        return
    frame: FrameType | None = sys._getframe()
    level = depth = 1
    while frame is not None:
        depth += 1
        # Between our frames there are some of the standard library, of context managers for instance.
        if _is_ours(frame.f_globals.get("__name__")):
            level = depth
        frame = frame.f_back
    warnings.warn(printable(text), stacklevel=level)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in ("kinetic", "kinetic_payload")
