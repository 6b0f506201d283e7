"""Amounts of memory: as text, and how much more to request where it was too little."""

from __future__ import annotations

from typing import Final

_MI: Final = 2**20
_LARGE: Final = 1024
"""From this number of mebibytes on, whole gibibytes are suggested."""


def memory_to_try(most: int) -> str:
    """Return what to request after *most* bytes were too little, as Kubernetes writes it.

    That is one and a half times as much, rounded up to whole gibibytes, or to 64 Mi if it is small.
    """
    wanted = -(-most * 3 // (2 * _MI))
    if wanted >= _LARGE:
        return f"{-(-wanted // _LARGE)}Gi"
    return f"{-(-wanted // 64) * 64}Mi"


def in_mebibytes(amount: int) -> str:
    """Return *amount*, in bytes, as text."""
    return f"{amount / _MI:,.0f} Mi"
