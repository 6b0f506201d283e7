"""Warnings: point at the user's line that called Kinetic, or pass the text to a program that reports it."""

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
    """Pass each text to *report* once instead of warning, in all threads, within the block."""
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
        # Frames of the standard library, such as context managers, may lie between those of Kinetic.
        if _is_kinetic(frame.f_globals.get("__name__")):
            level = depth
        frame = frame.f_back
    warnings.warn(printable(text), stacklevel=level)


def _is_kinetic(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in ("kinetic", "kinetic_payload")
