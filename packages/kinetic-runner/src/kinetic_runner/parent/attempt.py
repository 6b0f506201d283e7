"""One attempt, on this host: claim it, watch the child, report."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from functools import partial
from math import inf
from time import monotonic, time
from typing import Any, Final

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import InvalidRequestError, KineticError, RecordError
from kinetic_payload.layout import (
    EXIT_FUNCTION_FAILED,
    EXIT_NOT_PREPARED,
    EXIT_SUCCESS,
    EXIT_TERMINATED,
    Env,
    JobObjects,
    end_marker,
)
from kinetic_payload.limits import read_record
from kinetic_payload.records.attempt_result import is_loss_of_peer
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.records.signing import Signer
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.command_line import Arguments
from kinetic_runner.hosts import Host, host_of, restarts_of
from kinetic_runner.parent.child_process import Child
from kinetic_runner.parent.claims import AlreadyClaimedError, AlreadyFinishedError, claim_attempt
from kinetic_runner.parent.exit_code import outcome_of
from kinetic_runner.parent.log_upload import LogUploader
from kinetic_runner.parent.memory import memory_limit, peak_memory
from kinetic_runner.parent.report import OTHER_HOSTS_SECONDS, Reporter, print_line
from kinetic_runner.parent.signals import SelfPipe
from kinetic_runner.parent.tee import Tee
from kinetic_runner.parent.usage import UsageRecorder
from kinetic_runner.parent.watch import TimeLimits, Watch
from kinetic_runner.store_retries import NEW_POD_SECONDS, REFUSED, retry, retry_in_new_pod
from kinetic_runner.task import Given, Task

_LONG_FIELDS: Final = {"captured_env", "labels", "submitter", "keeper", "signature"}
"""Fields of a record that no runner needs: the others fit into a pipe."""
_LINGER: Final = 10.0
_LINGER_TOGETHER: Final = 300.0
"""Several hosts leave `jax.distributed` together: the first one to leave would abort the others."""
_UPLOAD_SECONDS: Final = 30.0
"""Seconds without a stored chunk of the log after which the rest of the log is dropped."""
_SERVICE_UPLOAD_SECONDS: Final = 180.0
"""The same for a store that is a service, which may be unreachable for a while."""
_ORPHAN_SECONDS: Final = 2.0
_READER_SECONDS: Final = 5.0
_LATE_SECONDS: Final = 5.0
"""Seconds to store a line of Kinetic's own that follows the end of the log."""
_FIRST_BACKOFF: Final = 10.0
_LONGEST_BACKOFF: Final = 600.0
"""Seconds between two tries to begin where the system would start an ended container at once."""
_AFTER_GRACE: Final = 15.0
"""Seconds beyond the grace for which a host that lost another one waits to be stopped: the other one may need
five of them to report."""


def run_attempt(
    arguments: Arguments,
    environment: Mapping[str, str],
    child: Child,
    signals: SelfPipe,
    *,
    linger: float | None = None,
) -> int:
    """Claim an attempt, give *child* its task, watch it, and report; return the exit code.

    With `Flag.IDLE`, return only after a stop was requested, once the job has its final outcome. Before, the
    system starts the container again, which then runs the next attempt. If an attempt cannot be claimed, try that
    again, more and more seldom: the system would not wait.

    Raises:
        KineticError: Nothing was claimed, so there is nothing to report on. Never with `Flag.IDLE`.
    """
    backoff = Backoff(_FIRST_BACKOFF, _LONGEST_BACKOFF, jitter=0)
    while True:
        try:
            attempt = Attempt(arguments, environment, child, signals, linger)
            code, job_ended = attempt.run()
            break
        except KineticError as error:
            if not arguments.idle:
                raise
            delay = backoff.next()
            print_line(f"{error}\nThe attempt cannot begin. Trying again in {delay:g} s.")
        if signals.wait(delay):
            return EXIT_TERMINATED
    if arguments.idle and job_ended:
        child.kill()
        signals.wait(inf)
    return code


class Attempt:
    """One attempt on this host."""

    def __init__(
        self,
        arguments: Arguments,
        environment: Mapping[str, str],
        child: Child,
        signals: SelfPipe,
        linger: float | None,
        *,
        member: tuple[JobRecord, Given] | None = None,
        on_end: Callable[[], object] = lambda: None,
        on_loaded: Callable[[str, str], object] | None = None,
    ) -> None:
        """*member* is the record of a member of a batch, and its input. *on_end* is called once the child has ended,
        and *on_loaded* with key and digest of data of the Hub that it has put into the store.
        """
        self._member = member
        self._on_end = on_end
        self._on_loaded = on_loaded
        self._started, self._began = time(), monotonic()
        self._arguments = arguments
        self._environment = environment
        self._child = child
        self._signals = signals
        self._linger = linger
        self._signer = Signer(signing_key(environment))
        self._store = open_store(parse_location(arguments.store))
        self._job = JobObjects(arguments.job)
        self._in_pod = arguments.lifeline is None
        """Whether there is no supervisor."""
        self.has_begun = False
        """Whether it is claimed, on all hosts."""

    def run(self) -> tuple[int, bool]:
        """Run it as `run_attempt` does; return the exit code, and whether the job has a final outcome."""
        try:
            record, host, number = retry_in_new_pod(
                self._begin_despite_outages if self._in_pod else self._begin,
                seconds=self._new_pod_seconds,
                pause=self._signals.wait,
                warn=print_line,
            )
        except AlreadyFinishedError as error:
            print_line(str(error))
            return EXIT_SUCCESS if error.succeeded else EXIT_FUNCTION_FAILED, True
        except AlreadyClaimedError as error:
            print_line(str(error))
            return EXIT_NOT_PREPARED, False
        except (KineticError, OSError):
            if not self._signals.stop_requested:
                raise
            return EXIT_TERMINATED, False
        if number is None:
            return EXIT_TERMINATED, False
        self.has_begun = True
        # A plain Indexed Job replaces single hosts: the others go on, so it makes one attempt alone.
        alone = record.workload == "Job" and host.count > 1
        reporter = self._reporter(record, host, alone=alone)
        # For a process that follows the log of a pod.
        on_cluster = record.workload is not None
        marker = end_marker(self._job.job_id, number, host.index) if on_cluster else ""
        preemptions = 0 if alone else record.preemptions
        refusal = reporter.refuse(number, preemptions=preemptions, replaced_alone=alone)
        if refusal:
            reporter.warn(refusal)
            if marker:
                tee = Tee(sys.stdout.fileno())  # It ignores a closed reader.
                tee.write(f"{marker}\n".encode())
                tee.finish(_READER_SECONDS)
            return EXIT_NOT_PREPARED, True
        code = self._watch(record, host, number, reporter, marker)
        return code, reporter.job_ended

    @property
    def _new_pod_seconds(self) -> float:
        """For how long rejected credentials are retried."""
        return max(0.0, self._began + NEW_POD_SECONDS - monotonic()) if self._in_pod else 0.0

    def _begin_despite_outages(self) -> tuple[JobRecord, Host, int | None]:
        """Begin, in a pod; repeat it while the store does not respond.

        A pod must not end because of an outage: the exit code 2 would end the job. A supervisor decides by itself.
        """
        warned: list[Exception] = []

        def warn_once(error: Exception) -> None:
            if not warned:
                warned.append(error)
                print_line(f"The attempt cannot be claimed yet: {error} Retrying until it can.")

        wait = self._signals.wait
        return retry(self._begin, seconds=inf, pause=wait, final=REFUSED, on_failure=warn_once)

    def _begin(self) -> tuple[JobRecord, Host, int | None]:
        """Read the record and claim an attempt; its number is None if a stop was requested before."""
        if self._member is not None:
            record = self._member[0]
        else:
            record, _ = _read_record(self._store, self._job, self._arguments.record_digest)
        is_member = self._member is not None
        # Of a worker with one host, the index that the system sets is its own.
        alone = is_member and record.hosts == 1
        host = Host() if alone else host_of(self._environment, record.hosts)
        # The restarts of a worker are not those of its inputs.
        restarts = restarts_of(self._environment, host)
        if is_member and host.count > 1:
            restarts = 0
        hostname = self._environment.get(Env.POD_NAME) or os.uname().nodename

        def claim_of(number: int) -> Claim:
            return Claim(
                job_id=self._job.job_id,
                attempt=number,
                host=host.index,
                hostname=hostname,
                pid=os.getpid(),
                claimed_at=self._started,
                restarts=restarts,
            )

        if host.count == 1 or self._arguments.attempt is not None:
            number = claim_attempt(
                self._store,
                self._job,
                host,
                attempt=self._arguments.attempt,
                claim_of=claim_of,
                pause=self._signals.wait,
                signer=self._signer,
            )
            return record, host, number
        from kinetic_runner.parent import rendezvous

        kind = rendezvous.Leader if host.leader else rendezvous.Follower
        hosts = kind(
            store=self._store,
            job=self._job,
            host=host,
            signer=self._signer,
            restarts=restarts,
            claim=claim_of,
            pause=self._signals.wait,
            log=print_line,
            refused_seconds=self._arguments.report_seconds,
        )
        try:
            return record, host, hosts.reach()
        except rendezvous.StoppedError:
            return record, host, None

    def _reporter(self, record: JobRecord, host: Host, *, alone: bool) -> Reporter:
        arguments, kept = self._arguments, self._arguments.pending_uploads
        lingers = self._in_pod and host.count > 1
        return Reporter(
            store=self._store,
            job=self._job,
            host=host,
            pause=self._signals.wait,
            # Of a local job, the supervisor decides whether another attempt follows.
            retries=(
                None
                if record.workload is None and self._member is None
                else 0
                if alone
                else record.retries
            ),
            silent_failures=arguments.idle,
            is_member=self._member is not None,
            other_hosts_seconds=inf if self._in_pod else OTHER_HOSTS_SECONDS,
            linger=arguments.grace + _AFTER_GRACE if lingers else 0.0,
            signer=self._signer,
            pending_uploads=PendingUploads(kept) if kept else None,
            seconds=arguments.report_seconds,
        )

    def _watch(
        self, record: JobRecord, host: Host, number: int, reporter: Reporter, marker: str
    ) -> int:
        """Give the child its task, watch it to its end, store its log, and report; return the exit code."""
        child = self._child
        child.adopt_orphans()  # Before user code starts: earlier orphans would not be found.
        task = Task(
            arguments=self._arguments,
            record=record,
            attempt=number,
            host=host.index,
            mark=child.mark,
            stop_fd=child.stop_fd,
            linger=self._linger or _LINGER,
            new_pod_seconds=self._new_pod_seconds,
            given=self._member[1] if self._member else None,
            signed=self._signer.key is not None,
        )
        child.send_task(task.encode())
        claim_seconds = monotonic() - self._began
        usage = UsageRecorder(self._store, self._job.usage(number, host.index), child.pid)
        watch, log = self._watcher(record, host, task, usage)

        def log_late(text: str) -> None:
            watch.log_line(text)
            log.close(_LATE_SECONDS)

        reporter.log = log_late
        end = watch.run()
        self._on_end()
        end = replace(
            end,
            memory_limit=memory_limit() if self._in_pod else None,
            phases={"claim": round(claim_seconds, 6), **end.phases},
        )
        outcome = outcome_of(end, self._blank(number, host))
        lost = bool(reporter.linger) and is_loss_of_peer(outcome)
        outcome = replace(outcome, lost_peer=True if lost else None)
        seconds = _SERVICE_UPLOAD_SECONDS if self._store.concurrency > 1 else _UPLOAD_SECONDS
        reader = _READER_SECONDS
        if end.cause == "orphaned":
            reporter.seconds = _ORPHAN_SECONDS
            reader = 0.0
        reporter.keep(outcome)  # First: uploading the log may take minutes.
        usage.close()
        log.close(min(seconds, reporter.seconds))
        if log.lost:
            why = log.error or "the store did not answer in time."
            lost_log = f"{log.lost} bytes of the log could not be stored: {why}"
            watch.log_line(lost_log)
            outcome = replace(outcome, warnings=(*outcome.warnings, lost_log))
        watch.tee.finish(reader)
        code = _report(reporter, outcome)
        if marker and reporter.reported:
            watch.mark_end(marker)
            watch.tee.finish(_READER_SECONDS)
        child.close()
        return code

    def _watcher(
        self, record: JobRecord, host: Host, task: Task, usage: UsageRecorder
    ) -> tuple[Watch, LogUploader]:
        log = LogUploader(self._store, partial(self._job.log_chunk, task.attempt, host.index))
        watch = Watch(
            self._child,
            self._signals,
            tee=Tee(sys.stdout.fileno()),
            log=log,
            limits=TimeLimits(
                timeout=record.timeout,
                grace=self._arguments.grace,
                linger=self._linger or (_LINGER if host.count == 1 else _LINGER_TOGETHER),
                linger_after_failure=self._linger or _LINGER,
            ),
            lifeline=self._arguments.lifeline,
            report_file=task.report_file,
            stop_file=task.stop_file,
            on_loaded=self._on_loaded,
            usage=usage,
        )
        return watch, log

    def _blank(self, number: int, host: Host) -> HostOutcome:
        """Return an outcome that says where and when the attempt ran, but not how it ended."""
        return HostOutcome(
            job_id=self._job.job_id,
            attempt=number,
            host=host.index,
            succeeded=False,
            reason="unreported",
            phase="claim",
            exit_code=EXIT_TERMINATED,
            started_at=self._started,
            finished_at=time(),
            peak_memory=peak_memory(in_container=self._in_pod),
            python=".".join(map(str, sys.version_info[:3])),
            hostname=os.uname().nodename,
            node=self._environment.get(Env.NODE_NAME) or None,
            devices_expected=self._environment.get(Env.DEVICES) or None,
        )


def read_job(
    arguments: Arguments, *, pause: Callable[[float], bool]
) -> tuple[Store, JobRecord, bytes]:
    """Return the store, the record and the bytes of the record, or the manifest, that *arguments* name.

    Raises:
        RecordError: It is not the record that the job was started with.
    """
    store = open_store(parse_location(arguments.store))
    read = partial(_read_record, store, JobObjects(arguments.job), arguments.record_digest)
    record, data = retry_in_new_pod(
        lambda: retry(read, seconds=arguments.report_seconds, pause=pause, final=REFUSED),
        seconds=NEW_POD_SECONDS if arguments.lifeline is None else 0.0,
        pause=pause,
        warn=print_line,
    )
    return store, record, data


def _read_record(store: Store, job: JobObjects, digest: str) -> tuple[JobRecord, bytes]:
    """Return the record of the job, without texts of any length that no runner needs, and its bytes.

    That of a batch is a part of its manifest.

    Raises:
        RecordError: It is not the record that the job was started with.
    """
    data = read_record(store, job.handle)
    if hashlib.sha256(data).hexdigest() != digest:
        raise RecordError(
            f"{store.location}/{job.handle} is not the record that the job was started with.",
            hint="It was changed in the store. Find out who can write there, and run the job again.",
        )
    # The digest vouches for the fields. Some are only for clients, and may be missing.
    values: dict[str, Any] = {
        each.name: ""
        for each in fields(JobRecord)
        if each.default is MISSING and each.default_factory is MISSING
    }
    known = {each.name for each in fields(JobRecord)} - _LONG_FIELDS
    written = fields_of(data)
    written = written.get("job", written)
    values |= {name: value for name, value in written.items() if name in known}
    return JobRecord(**values), data


def signing_key(environment: Mapping[str, str]) -> bytes | None:
    """Return the key of the job's records; None if they are not signed.

    Raises:
        InvalidRequestError: It is not hexadecimal.
    """
    text = environment.get(Env.SIGNING_KEY, "")
    try:
        return bytes.fromhex(text) or None
    except ValueError:
        raise InvalidRequestError(
            f"{Env.SIGNING_KEY} is not hexadecimal.",
            hint="It is the content of the namespace's secret, or of the file `key` in KINETIC_HOME.",
        ) from None


def _report(reporter: Reporter, outcome: HostOutcome) -> int:
    try:
        return reporter.report(outcome)
    except (KineticError, OSError) as error:
        print_line(f"The outcome could not be stored: {error}")
        pending = reporter.pending_uploads
        if pending is not None and pending.host_outcomes():
            print_line(
                f"It is kept in {pending.folder}. To store it, run on this machine: "
                f"kinetic jobs result {outcome.job_id}"
            )
        return outcome.exit_code or EXIT_FUNCTION_FAILED
