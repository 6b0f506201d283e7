"""Descendants of a job's runners, recorded while they live, where a process cannot adopt orphans."""

from __future__ import annotations

import time

from kinetic_payload.processes import (
    Process,
    descendants_of,
    kill_recorded,
    living_processes,
    still_living,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INTERVAL = 1.0
"""Seconds between two records."""


class Descendants:
    """What descends from the runners, by id and start time, which together belong to one process alone.

    macOS hides the environment of its own programs. If one left its session, and its parent has ended,
    nothing shows any more that it belongs to the job, unless it was recorded before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock()
        self.recorded: dict[int, Process] = {}

    def record(self, roots: Iterable[int]) -> float:
        """Record, if it is time, what descends from *roots*; return the seconds until the next time.

        *roots* are children of this process that are not reaped yet, so that their numbers are theirs.
        """
        left = self._next - self._clock()
        if left > 0:
            return left
        self._next = self._clock() + INTERVAL
        now = living_processes()
        if not now:
            return INTERVAL  # The system could not list them; what is recorded stays.
        known = still_living(self.recorded, now)
        found = descendants_of([*roots, *known], now)
        self.recorded = {**known, **{pid: now[pid] for pid in found}}
        return INTERVAL

    def kill(self) -> bool:
        """Kill those that live; return whether there were none."""
        return not self.recorded or kill_recorded(self.recorded)
