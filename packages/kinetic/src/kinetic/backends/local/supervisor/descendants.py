"""Descendants of a job's runners, recorded while they live, for systems without adoption of orphans."""

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
    """The runners' descendants, identified by id and start time, which together are unique.

    macOS hides the environment of its own programs. If such a program has left its session, and its parent
    has ended, only an earlier record shows that it belongs to the job.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock()
        self.recorded: dict[int, Process] = {}

    def record(self, roots: Iterable[int]) -> float:
        """Record the descendants of *roots* if this is due; return the seconds until it is due again.

        *roots* are children of this process that are not reaped yet, so their ids are still their own.
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
        """Kill the recorded processes that still live; return whether none did."""
        return not self.recorded or kill_recorded(self.recorded)
