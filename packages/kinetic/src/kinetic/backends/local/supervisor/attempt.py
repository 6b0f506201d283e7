"""One attempt, in the supervisor: the runners of all its hosts, started and stopped together."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress

from kinetic.backends.local.supervisor.runners import Runner, reap, start_runner
from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic.home.paths import Home, JobFolder
from kinetic_payload.files.private import make_fifo, make_new_folder
from kinetic_payload.lifeline import OTHERS_GONE, STOP
from kinetic_payload.processes import has_children

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kinetic.backends.local.limits import MemoryLimit
    from kinetic.backends.local.supervisor.ports import Port

_SIGTERM = 15
_OTHERS_FAIL_SECONDS = 1.0
"""Seconds that the other hosts have to fail by themselves: a program often fails on all of them, and then
the outcome should name the same host every time."""
REPORT_SECONDS = 5.0
"""Seconds that a runner has after the grace of its child, to end the child and to write an outcome."""
_MAX_REPORT_SECONDS = 8000.0
"""Seconds after which a runner that still reports is killed. Normally its own limits end it earlier."""
_POLL_SECONDS = 1.0


class Verdict:
    """The consequence of an attempt: the job succeeded, failed, or needs another attempt."""

    def __init__(self, *, succeeded: bool, retry: bool = False, message: str = "") -> None:
        self.succeeded = succeeded
        self.retry = retry
        self.message = message


class Attempt:
    """The runners of attempt *number*; they start at once.

    Each runner holds one end of a lifeline. If the supervisor is killed, the lifeline closes, and a runner
    whose function has not ended stops. All runners hold the write end of a FIFO, by which clients see that
    one of them lives and may still report.
    """

    def __init__(self, spec: SupervisorSpec, folder: JobFolder, number: int) -> None:
        self.number = number
        self.runners: list[Runner] = []
        self.first_failed: set[int] = set()
        """The hosts that were seen to fail first; later failures may be consequences."""
        self.over_memory: set[int] = set()
        self.problem = ""
        """Why a runner could not be started at all."""
        self._hosts = spec.hosts
        self._grace = spec.grace
        self._deadline: float | None = None
        self._stopping = False
        self._report_until = float("inf")
        self._limits: dict[int, MemoryLimit] = {}
        self._port: Port | None = None
        self._leader_released = False
        held = -1
        try:
            make_new_folder(folder.attempt(number))
            if number > 1:  # The client verified it before the first attempt.
                _refuse_changed(spec.bundle)
            held = hold_fifo(folder.runners(number))
            if spec.memory_limit is not None:
                from kinetic.backends.local.limits import limit_memory

                for host in range(spec.hosts):
                    name = f"{spec.job_id}-{number}-{host}"
                    self._limits[host] = limit_memory(name, spec.memory_limit)
            coordinator = ""
            if spec.hosts > 1:
                from kinetic.backends.local.supervisor.ports import reserve_port

                self._port = reserve_port(Home(spec.home).ports)
                coordinator = self._port.address
            for host in range(spec.hosts):
                self.runners.append(
                    start_runner(
                        spec,
                        folder,
                        attempt=number,
                        host=host,
                        coordinator=coordinator,
                        limit=self._limits.get(host),
                    )
                )
        except OSError as error:
            self.problem = f"The runner could not be started: {error}."
            self.stop()
        finally:
            if held >= 0:
                os.close(held)

    @property
    def running(self) -> bool:
        """Whether any host still runs."""
        return any(runner.status is None for runner in self.runners)

    @property
    def succeeded(self) -> bool:
        """Whether every host was started and its runner ended with 0."""
        ended = [runner.status for runner in self.runners]
        return ended == [0] * self._hosts

    @property
    def timeout(self) -> float | None:
        """Seconds until `advance` must be called even if nothing happens; None if it need not be."""
        waits = [limit.interval for limit in self._limits.values() if limit.interval is not None]
        if self._deadline is not None:
            waits.append(max(0.0, self._deadline - time.monotonic()))
        return min(waits, default=None)

    @property
    def lifelines(self) -> list[int]:
        """Descriptors over which runners may send something; `advance` reads them."""
        return [
            runner.lifeline
            for runner in self.runners
            if runner.is_readable and runner.lifeline is not None
        ]

    def stop(self, *, reports: bool = True, now: bool = True) -> None:
        """Ask every host to stop; kill the hosts that still run when their grace is over.

        If not *now*, a function that checks JAX for a preemption has most of the grace to save its state.
        With *reports*, a runner whose function has ended by then may finish its log and its report, which
        takes long if the store is slow.
        """
        if not self._stopping:
            self._stopping = True
            self._deadline = time.monotonic() + self._grace + REPORT_SECONDS
            self._report_until = self._deadline + _MAX_REPORT_SECONDS
            for runner in self.runners:
                if now:
                    runner.send(STOP)
                runner.signal(_SIGTERM)
        if not reports:
            self._report_until = time.monotonic()

    def advance(self) -> None:
        """Handle what happened since the last call: one failed host stops the others."""
        for runner in self.runners:
            if runner.is_readable:
                runner.read_lifeline()
        reap(self.runners)
        for host, limit in self._limits.items():
            with suppress(OSError):  # A cgroup that cannot be read: the job itself goes on.
                if limit.exceeded():
                    self.over_memory.add(host)
        if not self._stopping and not self.first_failed:
            self.first_failed = {
                runner.host for runner in self.runners if runner.failed or runner.reported_failure
            }
            if self.first_failed:
                self._deadline = time.monotonic() + _OTHERS_FAIL_SECONDS
            elif self._deadline is None and self.running and self.runners[0].status == 0:
                # The leader waited for all reports: a runner that still runs has nothing left to report.
                self._deadline = time.monotonic() + self._grace
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._enforce_deadline()
        others = self.runners[1:]
        if others and (self._stopping or self.first_failed) and not self._leader_released:
            # The leader ends last: JAX aborts hosts whose coordinator is gone.
            self._leader_released = all(runner.status is not None for runner in others)
            if self._leader_released:
                self.runners[0].send(OTHERS_GONE)

    def _enforce_deadline(self) -> None:
        if not self._stopping:
            self.stop()
            return
        now = time.monotonic()
        self._deadline = None
        for runner in self.runners:
            if runner.status is not None:
                continue
            # The user's processes are children of the runner. Without any, only its report is left to write.
            if now < self._report_until and not has_children(runner.pid):
                self._deadline = now + _POLL_SECONDS
            else:
                runner.kill()

    def close(self) -> None:
        """Kill the runners that still run; close the lifelines, and release the port."""
        for runner in self.runners:
            runner.close()
        if self._port is not None:
            self._port.close()

    def release_limits(self) -> None:
        """Remove the memory limits, once nothing runs under them any more."""
        for limit in self._limits.values():
            limit.close()


def _refuse_changed(bundle: str) -> None:
    """Make sure that the runner at *bundle* has the digest that is the name of its folder."""
    import hashlib

    folder, _ = os.path.split(bundle)
    with open(bundle, "rb") as stream:  # noqa: PTH123 - light
        if hashlib.sha256(stream.read()).hexdigest() != os.path.basename(folder):  # noqa: PTH119
            raise OSError(errno.EIO, "The runner was changed since the job began", bundle)


def hold_fifo(path: str) -> int:
    """Make a FIFO and return its write end, which the runners inherit."""
    make_fifo(path)
    # A writer can open a FIFO without waiting only when it has a reader.
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(reader)
    os.set_inheritable(writer, True)
    return writer
