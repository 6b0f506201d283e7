"""The supervisor: keeps one local job from its first attempt to its outcome.

It is the parent of the job's runners and lives in a session of its own. Everything that is not
needed to start them is imported afterwards, while they start: those milliseconds are the user's.
"""

from __future__ import annotations

import os
import sys
import time

from kinetic.local.attempt import Attempt, Verdict
from kinetic.local.paths import Home, JobFolder
from kinetic.local.spec import SupervisorSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kinetic.local.events import Events
    from kinetic.local.state import AttemptState, State

_LEFTOVERS = 5.0
"""Seconds to go on killing what a job left behind."""


def main() -> None:
    """Read the spec from the standard input and keep its job; `argv` holds the FIFOs' ends."""
    fds = [int(text) for text in sys.argv[1:4]]
    for fd in fds:
        os.set_inheritable(fd, False)
    spec = SupervisorSpec.decode(_read_all(0))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    supervise(spec, control=fds[1])


def _read_all(fd: int) -> bytes:
    chunks = []
    while chunk := os.read(fd, 1 << 16):
        chunks.append(chunk)
    return b"".join(chunks)


def supervise(spec: SupervisorSpec, *, control: int) -> None:
    """Run attempt after attempt until the job has an outcome."""
    folder = Home(spec.home).job(spec.job_id)
    _lock(folder.lock)
    attempt = Attempt(spec, folder, 1)
    started_at = time.time()
    # The runners are on their way: now there is time for the rest.
    from kinetic.local.events import Events
    from kinetic.local.processes import adopt_orphans

    job = _Job(spec, folder, Events(control), adopting=adopt_orphans())
    while True:
        verdict = job.see_through(attempt, started_at)
        if not verdict.retry:
            break
        job.sweep(attempt)
        started_at = time.time()
        attempt = Attempt(spec, folder, attempt.number + 1)
    job.end(verdict)
    job.sweep(attempt)


def _lock(path: str) -> None:
    import fcntl

    # Held until we die: the descriptor is never closed, nor the file opened again.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(fd, fcntl.LOCK_EX)


class _Job:
    def __init__(
        self, spec: SupervisorSpec, folder: JobFolder, events: Events, *, adopting: bool
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._events = events
        self._adopting = adopting
        self._attempts: list[AttemptState] = []

    def see_through(self, attempt: Attempt, started_at: float) -> Verdict:
        """Wait for the end of *attempt*, and say what follows."""
        self._attempts.append(
            {
                "number": attempt.number,
                "hosts": self._spec.hosts,
                "state": "running",
                "message": "",
                "pids": [runner.pid for runner in attempt.runners],
            }
        )
        self._write("running", "")
        attempt.advance()  # A runner may have ended before its signal could be heard.
        while attempt.running:
            self._events.wait(attempt.patience)
            if self._events.stop is not None:
                attempt.stop()
            attempt.advance()
        attempt.close()
        verdict = self._settle(attempt, started_at)
        self._attempts[-1]["state"] = "succeeded" if verdict.succeeded else "failed"
        self._attempts[-1]["message"] = verdict.message
        if verdict.retry:
            self._write("running", "")
        return verdict

    def _settle(self, attempt: Attempt, started_at: float) -> Verdict:
        spec = self._spec
        finished = spec.outcome_file is not None and os.path.exists(spec.outcome_file)  # noqa: PTH110
        if finished and all(runner.status == 0 for runner in attempt.runners):
            return Verdict(succeeded=True)
        from kinetic.local.reporting import Gone, settle
        from kinetic_payload.store import parse_location
        from kinetic_payload.stores import open_store

        by_host = {runner.host: runner for runner in attempt.runners}
        gone = []
        for host in range(spec.hosts):
            runner = by_host.get(host)
            gone.append(
                Gone(
                    host=host,
                    status=runner.status if runner else None,
                    ended_by_us=runner.ended_by_us if runner else False,
                    first=host in attempt.first_failed,
                    note=self._note(attempt, host),
                )
            )
        return settle(
            open_store(parse_location(spec.store)),
            spec.job_id,
            attempt.number,
            gone,
            retries=spec.retries,
            started_at=started_at,
            stop=self._events.stop,
        )

    def _note(self, attempt: Attempt, host: int) -> str:
        if host in attempt.over_memory:
            from kinetic.local.memory import readable_size

            assert self._spec.memory is not None
            limit = readable_size(self._spec.memory)
            return f"Host {host} used more memory than its limit of {limit} and was killed."
        return attempt.problem if host >= len(attempt.runners) else ""

    def end(self, verdict: Verdict) -> None:
        """Say that the job is over: its outcome is written."""
        self._write("succeeded" if verdict.succeeded else "failed", verdict.message)

    def _write(self, status: str, reason: str) -> None:
        from kinetic.local.state import write_state

        state: State = {"status": status, "reason": reason, "attempts": self._attempts}
        try:
            write_state(self._folder.state, state)
        except OSError as error:
            # A full disk must not end a job that may do well: this is what people read meanwhile.
            sys.stderr.write(f"The state could not be written: {error}\n")

    def sweep(self, attempt: Attempt) -> None:
        """Kill what the attempt left behind, wherever it went."""
        from kinetic.local.processes import sweep

        until = time.monotonic() + _LEFTOVERS
        while not sweep(self._spec.marker, adopting=self._adopting):
            if time.monotonic() >= until:
                break
            self._events.wait(0.01)
        attempt.release_limits()
