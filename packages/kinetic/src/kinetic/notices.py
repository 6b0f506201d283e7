"""What should be read by whoever called us: a warning about the line of theirs."""

from __future__ import annotations

import sys
import warnings


def warn_caller(text: str) -> None:
    """Warn about the line of the user's from which we were called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in ("kinetic", "kinetic_payload")
