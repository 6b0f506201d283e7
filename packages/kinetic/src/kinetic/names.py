"""The names of a job: its id, which people read, and its Kubernetes name, which must be short."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

TOKEN_LENGTH: Final = 7
"""Hex digits that make the names of one job unlike those of any other."""

_LONGEST: Final = 63
_LONGEST_ACCELERATOR: Final = 20
_LONGEST_K8S_FUNCTION: Final = 11


def job_id_of(accelerator: str, function: str, when: datetime, token: str) -> str:
    """Return `{accelerator}-{function}-{yyyymmdd}-{hhmmss}-{token}`, a DNS label.

    Args:
        accelerator: Its short name, such as `v5litepod-4`.
        function: The function's name; shortened where the whole would be too long.
        when: The moment of the submit, in UTC.
        token: Seven random hex digits.
    """
    head = _safe(accelerator, _LONGEST_ACCELERATOR) or "job"
    tail = f"{when:%Y%m%d-%H%M%S}-{token}"
    room = _LONGEST - len(head) - len(tail) - 2
    return f"{head}-{_safe(function, room) or 'call'}-{tail}"


def k8s_name_of(function: str, token: str) -> str:
    """Return `kn-{function}-{token}` with at most 22 characters: Pathways allows no more."""
    return f"kn-{_safe(function, _LONGEST_K8S_FUNCTION) or 'call'}-{token}"


def short_function_name(qualname: str) -> str:
    """Return the part of a qualified name that a person would call the function by."""
    last = qualname.rsplit(".", 1)[-1]
    return "lambda" if last == "<lambda>" else last


def _safe(text: str, longest: int) -> str:
    """Return *text* as lower-case letters, digits and single dashes, at most *longest* of them."""
    words = re.sub(r"[^a-z0-9]+", "-", short_function_name(text).lower())
    return words.strip("-")[:longest].strip("-")
