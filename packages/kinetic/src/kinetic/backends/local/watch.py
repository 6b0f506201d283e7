"""Watches of local jobs: wait until something may have changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

from kinetic.home.liveness import (
    is_alive,
    is_announced,
    is_reporting,
    wait_for_death,
    wait_for_end,
)
from kinetic.home.paths import Home
from kinetic.waiting import STORE_POLL, Deadline, poll_interval


class LocalWatch:
    """Watches jobs; each of *places* returns the current events of one job.

    It keeps no file descriptor open: a program may wait for more jobs than it may open files.
    """

    def __init__(self, places: Sequence[Callable[[], JobEvents]]) -> None:
        self._places = places
        self._woken = threading.Event()

    def wait(self, timeout: float | None) -> None:
        """Return when a job changed, or after *timeout* seconds."""
        deadline = Deadline(timeout)
        watched = [place() for place in self._places]
        while not (deadline.passed or self._woken.is_set()):
            # A list, so that all are called: each keeps a state.
            changed = [events.changed() for events in watched]
            if any(changed):
                return
            if len(watched) == 1:
                watched[0].rest(self._woken, deadline.at_most(_LONGEST))
            else:
                self._woken.wait(deadline.at_most(_LONGEST))
        self._woken.clear()

    def wake(self) -> None:
        """Let `wait` return at once."""
        self._woken.set()


_LONGEST: Final = 0.25


_Life = Literal["announced", "alive", "reporting", "gone"]


class FolderEvents:
    """Changes of a job that *home* keeps: its state, and the ends of its supervisor and its runners."""

    def __init__(self, home: Home, job_id: str) -> None:
        self.folder = home.job(job_id)
        self._home = home
        self._job_id = job_id
        self._began = time.monotonic()
        self._state: tuple[int, int] | None = None
        self._life: _Life = "alive"

    def changed(self) -> bool:
        """Return whether the supervisor wrote its state, started or died, or its runners ended."""
        with suppress(FileNotFoundError):
            found = os.stat(self.folder.state)  # noqa: PTH116 - called often
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._state:
                self._state = seen
                return True
        before, self._life = self._life, self._life_now()
        return self._life != before

    def rest(self, woken: threading.Event, seconds: float) -> None:
        """Return when the supervisor, or the last runner after it, is gone; or after a short while."""
        pause = min(seconds, poll_interval(time.monotonic() - self._began))
        if self._life == "alive":
            wait_for_death(self.folder, pause, given_up=woken.is_set)
        elif self._life == "reporting":
            wait_for_end(self.folder, pause, given_up=woken.is_set)
        else:
            woken.wait(pause)

    def _life_now(self) -> _Life:
        if is_alive(self.folder):
            return "alive"
        if is_reporting(self.folder):
            return "reporting"
        return "announced" if is_announced(self._home, self._job_id) else "gone"


class StoreEvents:
    """Changes of a job that only the store shows; *look* returns a value to compare."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._next = 0.0
        self._last: object = None

    def changed(self) -> bool:
        """Return whether the store shows a change; it is read only once after each pause."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + STORE_POLL
        seen = self._look()
        changed, self._last = seen != self._last, seen
        return changed

    def rest(self, woken: threading.Event, seconds: float) -> None:
        """Return when it is time for the next look."""
        woken.wait(min(seconds, max(0.0, self._next - time.monotonic())))


JobEvents = FolderEvents | StoreEvents
