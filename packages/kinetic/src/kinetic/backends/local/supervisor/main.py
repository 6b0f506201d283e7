"""The supervisor: manages one local job from its first attempt to its outcome.

It is the parent of the job's runners and runs in a session of its own. Modules that are not needed to start
the runners are imported afterwards, so that the user's function starts sooner. They are imported while it runs,
because Kinetic may be upgraded or removed while the job runs.
"""

from __future__ import annotations

import os
import sys
import time

from kinetic.backends.local.supervisor.attempt import Attempt, Verdict
from kinetic.backends.local.supervisor.spec import SupervisorSpec
from kinetic.home.paths import Home, JobFolder
from kinetic_payload.files.private import open_private
from kinetic_payload.processes import adopt_orphans, kill_children, kill_marked, kill_tree, reap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetic.backends.local.supervisor.descendants import Descendants
    from kinetic.backends.local.supervisor.events import Events
    from kinetic.backends.local.supervisor.pool import Pool
    from kinetic.backends.local.supervisor.report import EndedRunner
    from kinetic.backends.local.supervisor.state import AttemptState, State
    from kinetic_payload.records.pending_uploads import PendingUploads
    from kinetic_payload.stores.store import Store

_RETRY_SECONDS = 5.0
_LOAD_AFTER = 5.0
"""Seconds until the deferred imports, which are more than the rest of a supervisor. Twenty short jobs at once have
ended by then, on two cores, too."""
_NOT_PREPARED = 2
_PREFIX = "[kinetic] "
_LOG_BYTES = 2000
"""Bytes at the start of a log that are searched for a runner's error."""


def main() -> None:
    """Read the spec from stdin and manage its job; `argv` holds the descriptors of the FIFOs."""
    import _signal  # type: ignore[import-not-found]  # Unlike `signal`, imported in no time.

    # The submitter may ignore SIGCHLD. Then the system would discard the status of a runner that ends early.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    fds = [int(text) for text in sys.argv[1:4]]
    for fd in fds:
        os.set_inheritable(fd, False)
    with open(0, "rb", closefd=False) as stream:
        spec = SupervisorSpec.decode(stream.read())
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    supervise(spec, control=fds[1])
    # Nothing is buffered, and the end of an interpreter takes as long as half of its start.
    os._exit(0)


def supervise(spec: SupervisorSpec, *, control: int) -> None:
    """Run attempt after attempt until the job has an outcome.

    *control* is the read end of the FIFO through which a stop is requested; its write end stays open as well.
    """
    folder = Home(spec.home).job(spec.job_id)
    _lock(folder.lock)
    attempt: Attempt | Pool
    if spec.workers:
        from kinetic.backends.local.supervisor.pool import Pool

        attempt = Pool(spec, folder)
    else:
        attempt = Attempt(spec, folder, 1)
    started_at = time.time()
    # The runners are starting: now import the rest.
    from kinetic.backends.local.supervisor.events import Events
    from kinetic.backends.local.supervisor.power import keep_awake

    keep_awake(spec.keep_awake, os.getpid())
    job = _Job(spec, folder, Events(control), adopting=adopt_orphans())
    while True:
        verdict = job.watch(attempt, started_at)
        if not verdict.retry:
            break
        job.kill_remains(attempt)
        started_at = time.time()
        attempt = Attempt(spec, folder, attempt.number + 1)
    # Before the final state is written: a client that finds the supervisor dead, without a final state, kills
    # the remains itself.
    job.kill_remains(attempt)
    job.end(verdict)
    # The next job is started by a process that may have been killed.
    try:
        names = os.listdir(Home(spec.home).queue)  # noqa: PTH208 - light
        if not all(name.startswith("running-") for name in names):
            from kinetic.home.queue import ensure_starter

            ensure_starter(Home(spec.home))
    except (OSError, ImportError):
        return  # Kinetic or its home was removed meanwhile, or this job took no place.


def _open(spec: SupervisorSpec) -> Store:
    from kinetic_payload.stores import open_store
    from kinetic_payload.stores.store import parse_location

    return open_store(parse_location(spec.store))


def _lock(path: str) -> None:
    import fcntl

    # Held until this process ends: closing this descriptor, or another one of the file, would release it.
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    fcntl.lockf(fd, fcntl.LOCK_EX)


class _Job:
    def __init__(
        self, spec: SupervisorSpec, folder: JobFolder, events: Events, *, adopting: bool
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._events = events
        self.descendants: Descendants | None = None
        if not adopting:
            from kinetic.backends.local.supervisor.descendants import Descendants

            self.descendants = Descendants()
        self._attempts: list[AttemptState] = []
        self._load_at: float | None = time.monotonic() + _LOAD_AFTER

    @property
    def pending_uploads(self) -> PendingUploads:
        """Results that the runners could not store."""
        from kinetic_payload.records.pending_uploads import PendingUploads

        return PendingUploads(self._folder.pending_uploads)

    def watch(self, attempt: Attempt | Pool, started_at: float) -> Verdict:
        """Wait for the end of *attempt*; return what follows from it."""
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
        while True:
            if self._events.stop is not None:  # Also if the request came before this attempt began.
                # A client that cancels has written the outcome, and waits: reports are not needed.
                cancelled = self._events.stop == "cancelled"
                attempt.stop(reports=not cancelled, now=cancelled)
            attempt.advance()  # A runner may have ended before its SIGCHLD was handled.
            if not attempt.running:
                break
            timeout = self._load_when_due(attempt.timeout)
            if self.descendants is not None:
                living = [runner.pid for runner in attempt.runners if runner.status is None]
                left = self.descendants.record(living)
                timeout = left if timeout is None else min(timeout, left)
            self._events.wait(timeout, attempt.lifelines)
        attempt.close()
        if isinstance(attempt, Attempt):
            verdict = self._verdict_on(attempt, started_at)
        else:
            verdict = attempt.verdict()
        self._attempts[-1]["state"] = "succeeded" if verdict.succeeded else "failed"
        self._attempts[-1]["message"] = verdict.message
        if verdict.retry:
            self._write("running", "")
        return verdict

    def _load_when_due(self, timeout: float | None) -> float | None:
        """Do the deferred imports if they are due; return how long to wait, at most *timeout*."""
        if self._load_at is None:
            return timeout
        left = self._load_at - time.monotonic()
        if left > 0:
            return left if timeout is None else min(timeout, left)
        self._load_at = None
        try:  # What the end of an attempt and the next attempt need.
            import hashlib  # noqa: F401

            import kinetic.backends.local.supervisor.report  # noqa: F401
            import kinetic_payload.progress
            import kinetic_payload.records.pending_uploads  # noqa: F401

            _open(self._spec)
            if self._spec.signing_key:
                import hmac  # noqa: F401
        except ImportError as error:
            self._log(f"Kinetic was removed or replaced while the job started: {error}")
        return 0.0

    def _verdict_on(self, attempt: Attempt, started_at: float) -> Verdict:
        spec = self._spec
        # A bucket is not queried: a leader that ends with 0 has seen the outcome there.
        finished = spec.outcome_file is None or os.path.exists(spec.outcome_file)  # noqa: PTH110
        if finished and attempt.succeeded:
            return Verdict(succeeded=True)
        from kinetic.backends.local.supervisor.report import EndedRunner

        by_host = {runner.host: runner for runner in attempt.runners}
        ended = []
        for host in range(spec.hosts):
            runner = by_host.get(host)
            status = runner.status if runner else None
            ended.append(
                EndedRunner(
                    host=host,
                    status=status,
                    ended_by_us=runner.ended_by_us if runner else False,
                    first=host in attempt.first_failed,
                    note=self._note(attempt, host),
                    printed=self._printed_error(attempt.number, host, status),
                )
            )
        return self._report(ended, attempt.number, started_at)

    def _report(self, ended: Sequence[EndedRunner], number: int, started_at: float) -> Verdict:
        """Store the results that the runners could not store; then write how the attempt ended.

        While the store fails, try again. Give up `report_seconds` after the oldest unstored result was written;
        without one, after this call.
        """
        from kinetic.backends.local.supervisor.report import report_attempt
        from kinetic_payload.errors import (
            BucketNotFoundError,
            IntegrityError,
            PreconditionFailedError,
            StoreError,
        )
        from kinetic_payload.records.signing import Signer

        spec = self._spec
        since = self.pending_uploads.since
        tried = max(0.0, time.time() - since) if since is not None else 0.0
        until = time.monotonic() + spec.report_seconds - tried
        signer = Signer(bytes.fromhex(spec.signing_key) or None)
        while True:
            try:
                store = _open(spec)
                self.pending_uploads.store_all(store, signer)
                return report_attempt(
                    store,
                    spec.job_id,
                    number,
                    ended,
                    retries=spec.retries,
                    started_at=started_at,
                    stop=self._events.stop,
                    signer=signer,
                )
            except (StoreError, IntegrityError, OSError) as error:
                why = error.message if isinstance(error, (StoreError, IntegrityError)) else error
                # If the folder was removed or the job was cancelled, the report is useless.
                wanted = os.path.isdir(self._folder.path) and self._events.stop != "cancelled"  # noqa: PTH112
                lasting = (BucketNotFoundError, IntegrityError, PreconditionFailedError)
                final = isinstance(error, lasting)
                if final or not wanted or time.monotonic() >= until:
                    message = f"The job's outcome could not be stored: {why}"
                    return Verdict(succeeded=False, message=message)
                reason = f"The attempt has ended, and its outcome cannot be stored yet: {why}"
                self._write("running", reason)
            self._events.wait(_RETRY_SECONDS)

    def _printed_error(self, attempt: int, host: int, status: int | None) -> str:
        """Return the error that a runner printed, if it could not prepare the call; else an empty text."""
        from kinetic_payload.layout import STDERR_MARK

        if status is None or os.waitstatus_to_exitcode(status) != _NOT_PREPARED:
            return ""
        try:
            with open(self._folder.log(attempt, host), "rb") as stream:  # noqa: PTH123
                text = stream.read(_LOG_BYTES).decode(errors="replace")
        except OSError:
            return ""
        return " ".join(text.replace(STDERR_MARK, "").partition(_PREFIX)[2].split())

    def _note(self, attempt: Attempt, host: int) -> str:
        if host in attempt.over_memory:
            from kinetic_payload.progress import size_text

            assert self._spec.memory_limit is not None
            limit = size_text(self._spec.memory_limit, binary=True)
            return f"Host {host} used more memory than its limit of {limit} and was killed."
        return attempt.problem if host >= len(attempt.runners) else ""

    def end(self, verdict: Verdict) -> None:
        """Write the final state. Call it once the outcome is written."""
        self._write("succeeded" if verdict.succeeded else "failed", verdict.message)

    def _write(self, status: str, reason: str) -> None:
        from kinetic.backends.local.supervisor.state import write_state

        state: State = {"status": status, "reason": reason, "attempts": self._attempts}
        try:
            write_state(self._folder.state, state)
        except OSError as error:
            # A full disk must not end a job: the state only shows its progress.
            self._log(f"The state could not be written: {error}")

    def _log(self, text: str) -> None:
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except OSError:
            return  # stderr is a file on the same disk.

    def kill_remains(self, attempt: Attempt | Pool) -> None:
        """Kill the processes that the attempt left behind, in any session."""
        kill_tree(self._kill_once, pause=lambda: self._events.wait(0.01))
        attempt.release_limits()

    def _kill_once(self) -> bool:
        if self.descendants is None:
            _, children_left = reap()
            return not children_left or kill_children()
        none_marked = kill_marked(self._spec.mark)
        return self.descendants.kill() and none_marked
