"""Descendants of a job's runners, recorded while they live, where the system lets nobody adopt orphans."""

from __future__ import annotations

import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psutil

EVERY = 1.0
"""Seconds between two looks."""


class Descendants:
    """Processes by id and start time, which together belong to one process alone.

    macOS hides the environment of its own programs. One that left its session, and whose parent has
    ended, cannot be told from a stranger's any more: it has to be known from before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock()
        self._found: dict[int, psutil.Process] = {}

    @property
    def pids(self) -> set[int]:
        """The ids of those that were recorded and live."""
        return {pid for pid, process in self._found.items() if _lives(process)}

    def look(self, roots: Iterable[int]) -> float:
        """Record, if it is time, what descends from *roots*; return the seconds until the next look.

        *roots* are children of this process that are not reaped yet, so that their numbers are theirs.
        """
        left = self._next - self._clock()
        if left > 0:
            return left
        self._next = self._clock() + EVERY
        try:
            import psutil
        except ImportError:  # Kinetic was removed while the job started, which is reported.
            return EVERY

        children: dict[int, list[psutil.Process]] = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                children.setdefault(process.ppid(), []).append(process)
        self._found = {pid: one for pid, one in self._found.items() if _lives(one)}
        todo = [*roots, *self._found]
        while todo:
            for child in children.pop(todo.pop(), ()):
                self._found[child.pid] = child
                todo.append(child.pid)
        return EVERY

    def kill(self) -> bool:
        """Kill those that live; return whether there were none."""
        if not self._found:
            return True
        import psutil

        living = [process for process in self._found.values() if _lives(process)]
        for process in living:
            with suppress(psutil.Error):
                process.kill()  # It compares the start time.
        return not living


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
