"""What should be read by whoever called us: a warning about the line of theirs."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from kinetic_payload.printable import printable


def warn_caller(text: str) -> None:
    """Warn about the line of the user's from which we were called; control characters are escaped."""
    frame: FrameType | None = sys._getframe()
    level = depth = 1
    while frame is not None:
        depth += 1
        # Between ours there are those of the standard library: of context managers, for instance.
        if _is_ours(frame.f_globals.get("__name__")):
            level = depth
        frame = frame.f_back
    warnings.warn(printable(text), stacklevel=level)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in ("kinetic", "kinetic_payload")
