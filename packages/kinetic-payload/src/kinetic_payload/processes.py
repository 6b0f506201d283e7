"""Kill again and again what killed processes leave behind, until nothing is left."""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:  # Supervisors import this, and `typing` takes longer than all the rest of it.
    from collections.abc import Callable

SECONDS = 5.0
_ROUNDS = 50
"""At least so many, however long one takes: what is killed in one hands its children to the next."""


def sweep(
    kill: Callable[[], bool], *, pause: Callable[[], object], seconds: float = SECONDS
) -> None:
    """Call *kill*, which tells whether nothing was left, until it does; *pause* in between.

    What is there after *seconds*, and fifty rounds, is given up.
    """
    until = monotonic() + seconds
    rounds = 1
    while not kill():
        if rounds >= _ROUNDS and monotonic() >= until:
            return
        rounds += 1
        pause()
