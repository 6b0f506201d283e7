"""`Diagnosis`: a cause, the words of the component that reports it, and a remedy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """A cause, with the message of the component that reports it."""

    cause: str
    """An identifier for programs: `unschedulable`, `image`, `out-of-memory` and so on."""
    reason: str
    remedy: str = ""
    """What to do. Empty unless the rule that found the cause knows it."""
