"""The workers of a batch, in the supervisor: some run at the same time, and a lost one is started again."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from kinetic.backends.local.supervisor.attempt import REPORT_SECONDS, Verdict, hold_fifo
from kinetic.backends.local.supervisor.runners import Runner, reap, start_runner
from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic.home.paths import JobFolder
from kinetic_payload.files.private import make_new_folder
from kinetic_payload.lifeline import STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kinetic.backends.local.limits import MemoryLimit

_SIGTERM = 15
_LONGEST_PAUSE = 30.0


class Pool:
    """Runs the workers of a batch. It is used as an `Attempt` is, of which there is only one."""

    number = 1

    def __init__(self, spec: SupervisorSpec, folder: JobFolder) -> None:
        self.runners: list[Runner] = []
        self.problem = ""
        self.lifelines: list[int] = []
        self._spec = spec
        self._folder = folder
        self._waiting = [(0.0, worker) for worker in reversed(spec.workers)]
        """The last is the next: from when on it may start, and its number."""
        self._lost: dict[int, int] = {}
        self._slots = list(range(spec.at_once))
        self._slot_of: dict[int, int] = {}
        self._limits: dict[int, MemoryLimit] = {}
        self._stopping = False
        self._kill_at = float("inf")
        make_new_folder(folder.attempt(self.number))
        self._held = hold_fifo(folder.runners(self.number))
        self.advance()

    @property
    def running(self) -> bool:
        """Whether a worker runs, or is to be started."""
        return bool(self.runners) or (bool(self._waiting) and not self._stopping)

    @property
    def succeeded(self) -> bool:
        """Whether all workers ran to their end."""
        return not (self.running or self._waiting or self.problem)

    @property
    def timeout(self) -> float | None:
        """Seconds until `advance` must be called even if nothing happens; None if it need not be."""
        waits = [limit.interval for limit in self._limits.values() if limit.interval is not None]
        if self._stopping:
            waits.append(self._kill_at - time.monotonic())
        elif self._waiting and self._slots:
            waits.append(self._waiting[-1][0] - time.monotonic())
        return max(0.0, min(waits)) if waits else None

    def stop(self, *, reports: bool = True, now: bool = True) -> None:
        """Ask the workers to stop, and start no other; without *reports*, kill them once their grace is over."""
        if not self._stopping:
            self._stopping = True
            wait = self._spec.grace + (self._spec.report_seconds if reports else 0.0)
            self._kill_at = time.monotonic() + wait + REPORT_SECONDS
            for runner in self.runners:
                if now:
                    runner.send(STOP)
                runner.signal(_SIGTERM)

    def advance(self) -> None:
        """Handle what happened since the last call: start workers in place of those that ended."""
        reap(self.runners)
        for limit in self._limits.values():
            with suppress(OSError):  # A cgroup that cannot be read: the batch itself goes on.
                limit.exceeded()  # Kills what is too large, where the kernel does not.
        for runner in [runner for runner in self.runners if runner.status is not None]:
            self.runners.remove(runner)
            runner.close()
            self._slots.append(self._slot_of.pop(runner.host))
            if runner.host in self._limits:
                self._limits.pop(runner.host).close()
            if runner.status != 0 and not self._stopping:
                self._start_again(runner.host)
        now = time.monotonic()
        if now >= self._kill_at:
            for runner in self.runners:
                runner.kill()
        while self._slots and self._waiting and self._waiting[-1][0] <= now and not self._stopping:
            self._start(self._waiting.pop()[1])

    def _start_again(self, worker: int) -> None:
        from kinetic_payload.records.retry import most_lost

        lost = self._lost[worker] = self._lost.get(worker, 0) + 1
        if lost > most_lost(self._spec.per_worker):
            log = self._folder.log(self.number, worker)
            self.problem = (
                f"Worker {worker} ended {lost} times before its inputs were done. Its log: {log}"
            )
            return
        pause = min(0.1 * 2**lost, _LONGEST_PAUSE)
        self._waiting.append((time.monotonic() + pause, worker))
        self._waiting.sort(reverse=True)

    def _start(self, worker: int) -> None:
        from kinetic.backends.local.limits import limit_memory

        slot = self._slots.pop(0)
        try:
            if self._spec.memory_limit is not None:
                name = f"{self._spec.job_id}-{worker}"
                self._limits[worker] = limit_memory(name, self._spec.memory_limit)
            runner = start_runner(
                self._spec,
                self._folder,
                attempt=self.number,
                host=worker,
                workspace=slot,
                coordinator="",
                limit=self._limits.get(worker),
            )
        except OSError:
            self._slots.append(slot)
            if worker in self._limits:
                self._limits.pop(worker).close()
            self._start_again(worker)
            return
        self._slot_of[worker] = slot
        self.runners.append(runner)

    def verdict(self) -> Verdict:
        """Return what follows from the end of all workers. The batch itself has no outcome to write."""
        return Verdict(succeeded=self.succeeded, message=self.problem)

    def close(self) -> None:
        """Kill the workers that still run."""
        for runner in self.runners:
            runner.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def release_limits(self) -> None:
        """Remove the memory limits, once nothing runs under them any more."""
        for limit in self._limits.values():
            limit.close()
