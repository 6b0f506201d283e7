"""`RunningBackend`: a `FakeBackend` that runs its jobs, as children of this process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from kinetic.backends.backend import Environment, Launch, LogLine, Packaging, never
from kinetic.backends.local.detached import base_environment
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import outcome_of, read_end
from kinetic.jobs.runner import runner_bundle, runner_environment, runner_flags
from kinetic.jobs.stored_logs import stored_lines
from kinetic.settings.settings import environment
from kinetic.submit.request import JobRequest
from kinetic.testing.fakes import FakeBackend, create_outcome
from kinetic_payload.layout import Env, Flag
from kinetic_payload.records.attempt_result import HostEnd, Result, deciding, result_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.retry import another_attempt, tally_of
from kinetic_payload.stores.store import Store


@dataclass
class _Runner:
    process: subprocess.Popen[str]
    lifeline: int
    """This process's end of a pipe; the runner exits when it is closed."""


@dataclass
class _Job:
    launch: Launch
    stopping: threading.Event = field(default_factory=threading.Event)
    runners: list[_Runner] = field(default_factory=list)
    keeper: threading.Thread | None = None


class RunningBackend(FakeBackend):
    """The smallest backend that runs jobs: it starts Kinetic's runner, one child for each host.

    *store* is a folder, without signatures; workspaces are below *home*. At most *places* jobs run at once, the
    others are pending. Nothing survives this process.
    """

    name = "running"

    def __init__(self, store: Store, home: Path, *, places: int = 8) -> None:
        super().__init__(store)
        self._home = home
        self._places = places
        self._jobs: dict[str, _Job] = {}
        self._at_work: set[str] = set()

    def environment(self, request: JobRequest, project: Packaging) -> Environment:  # noqa: ARG002
        """Return this interpreter."""
        return Environment(f"python:{sys.executable}")

    def start(self, launch: Launch) -> None:
        """Make the job's resource, and run it as soon as a place is free.

        Raises:
            SubmitError: The job has one already, or an object that it needs is not in the store.
        """
        super().start(launch)
        job = self._jobs[launch.record.job_id] = _Job(launch)
        job.keeper = threading.Thread(target=self._keep, args=(job,), daemon=True)
        job.keeper.start()

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over what the latest attempt printed; with *follow*, until the job ends."""
        if record.job_id not in self._jobs:
            yield from stored_lines(self._store, record.job_id, tail=tail)
        elif follow:
            yield from super().log_lines(record, follow=True, tail=tail, stopped=stopped)
        else:
            lines = list(self._logs.get(record.job_id, []))
            latest = [line for line in lines if line.attempt == lines[-1].attempt]
            yield from latest if tail is None else latest[max(0, len(latest) - tail) :]

    def stop(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:  # noqa: ARG002
        """Stop the job's runners, and return when they are gone.

        Raises:
            JobError: A runner still runs after *timeout* seconds.
        """
        with self.journal.noting(f"stop {record.job_id}"):
            job = self._jobs.get(record.job_id)
            if job is None or job.keeper is None:
                return
            job.stopping.set()
            self._notify()
            _terminate(job.runners)
            job.keeper.join(timeout)
            if job.keeper.is_alive():
                raise JobError(
                    f"Job {record.job_id} still runs {timeout:g} s after SIGTERM.",
                    job_id=record.job_id,
                )

    def remove(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Stop the job and remove its resource."""
        super().remove(record, timeout=timeout, poll_interval=poll_interval)
        self._jobs.pop(record.job_id, None)
        shutil.rmtree(self._folder(record), ignore_errors=True)

    def _keep(self, job: _Job) -> None:
        """Run the job and write its outcome."""
        job_id = job.launch.record.job_id
        resource = self._resources[job_id]
        try:
            outcome = self._outcome_of(job)
            create_outcome(self._store, outcome, self._key_signer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job no longer runs
            self.dies(job_id, f"It could not be run: {error}")
            return
        finally:
            with self.changed:
                self._at_work.discard(job_id)
        succeeded = outcome.status == "succeeded"
        status = JobStatus.SUCCEEDED if succeeded else JobStatus.FAILED
        self._change(resource, status, outcome.message)

    def _outcome_of(self, job: _Job) -> Outcome:
        """Wait for a place, make attempts until no other follows, and return the outcome."""
        record = job.launch.record
        if not self._take_place(record.job_id, job):
            return Outcome(job_id=record.job_id, status="cancelled", written_by="supervisor")
        self.runs(record.job_id)
        results: list[Result] = []
        for number in count(1):
            ends = self._attempt(job, number)
            chosen, earlier = deciding(ends), tally_of(results)
            results.append(result_of(ends, record.hosts))
            if job.stopping.is_set():
                return outcome_of(record.job_id, number, ends, stop="cancelled")
            if not another_attempt(
                chosen, earlier, retries=record.retries, preemptions=record.preemptions
            ):
                return outcome_of(record.job_id, number, ends, stop=None)
            turn = f"Attempt {number} ended: {chosen.message} Attempt {number + 1} begins."
            self._print(record, f"[kinetic] {turn}", attempt=number + 1)
        raise AssertionError("The loop above does not end.")

    def _take_place(self, job_id: str, job: _Job) -> bool:
        """Wait for a free place and take it; return False if the job is stopped first."""
        with self.changed:
            while len(self._at_work) >= self._places and not job.stopping.is_set():
                self._resources[job_id].reason = f"It waits for one of {self._places} places."
                self.changed.wait(1)
            if not job.stopping.is_set():
                self._at_work.add(job_id)
        return not job.stopping.is_set()

    def _attempt(self, job: _Job, number: int) -> list[HostEnd]:
        """Run one attempt on all hosts, and return how each ended; a host that fails ends the others."""
        record = job.launch.record
        hosts = range(record.hosts)
        job.runners = [self._runner(job.launch, number, host) for host in hosts]
        if job.stopping.is_set():
            _terminate(job.runners)
        readers = [
            threading.Thread(target=self._follow, args=(job, number, host), daemon=True)
            for host in hosts
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return [
            self._end(record, number, host, job.runners[host].process.returncode) for host in hosts
        ]

    def _end(self, record: JobRecord, number: int, host: int, code: int) -> HostEnd:
        reported = read_end(self._store, record.job_id, number, host)
        message = f"The runner of host {host} ended with {code}, and reported nothing."
        return reported or HostEnd(host, False, "killed", code, message)

    def _runner(self, launch: Launch, number: int, host: int) -> _Runner:
        record, location = launch.record, self._store.location
        folder = self._folder(record) / f"attempt-{number}-host-{host}"
        folder.mkdir(parents=True)
        bundle = self._folder(record) / "runner.py"
        bundle.write_bytes(runner_bundle(self._home))
        variables = runner_environment(record, location)
        Path(variables[Env.OUTPUT_DIR]).mkdir(parents=True, exist_ok=True)
        variables |= {Env.ATTEMPT: str(number), Env.HOST_INDEX: str(host)}
        variables[Env.HOME] = str(self._home)
        lifeline, own_end = os.pipe()
        more = {Flag.WORKSPACE: folder, Flag.ATTEMPT: number, Flag.LIFELINE: lifeline}
        try:
            process = subprocess.Popen(
                [sys.executable, "-u", str(bundle), *runner_flags(launch, location, more)],
                env={**base_environment(environment()), **launch.request.captured_env, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=[lifeline],
                start_new_session=True,
            )
        except BaseException:
            os.close(own_end)
            raise
        finally:
            os.close(lifeline)
        return _Runner(process, own_end)

    def _follow(self, job: _Job, number: int, host: int) -> None:
        runner = job.runners[host]
        with runner.process as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._print(job.launch.record, line.rstrip("\n"), host=host, attempt=number)
        os.close(runner.lifeline)
        if process.returncode != 0:
            _terminate(job.runners)

    def _print(self, record: JobRecord, text: str, *, host: int = 0, attempt: int) -> None:
        line = LogLine(text, host, attempt)
        with self.changed:
            self._logs.setdefault(record.job_id, []).append(line)
            self.changed.notify_all()

    def _folder(self, record: JobRecord) -> Path:
        return self._home / "running" / record.job_id


def _terminate(runners: list[_Runner]) -> None:
    for runner in runners:
        runner.process.send_signal(signal.SIGTERM)  # No effect on one that has ended.
