"""One attempt, on this host: claim it, watch the child, report."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic, time
from typing import Final

from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import InvalidRequestError, KineticError
from kinetic_payload.layout import (
    EXIT_FUNCTION_FAILED,
    EXIT_NOT_PREPARED,
    EXIT_SUCCESS,
    EXIT_TERMINATED,
    Env,
    JobObjects,
    end_marker,
)
from kinetic_payload.records.attempt_result import is_loss_of_peer
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.records.signing import Signer
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.command_line import Arguments
from kinetic_runner.hosts import Host, host_of, restarts_of
from kinetic_runner.parent.child_process import Child
from kinetic_runner.parent.claims import AlreadyClaimedError, AlreadyFinishedError, claim_attempt
from kinetic_runner.parent.exit_code import ChildEnd, outcome_of
from kinetic_runner.parent.log_upload import LogUploader
from kinetic_runner.parent.memory import memory_limit, oom_kills, peak_memory
from kinetic_runner.parent.report import OTHER_HOSTS_SECONDS, Reporter, print_line
from kinetic_runner.parent.signals import SelfPipe
from kinetic_runner.parent.tee import Tee
from kinetic_runner.parent.watch import TimeLimits, Watch
from kinetic_runner.store_retries import NEW_POD_SECONDS, REFUSED, retry, retry_in_new_pod
from kinetic_runner.task import Task

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
            code, job_ended = _run_once(arguments, environment, child, signals, linger)
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


def _run_once(
    arguments: Arguments,
    environment: Mapping[str, str],
    child: Child,
    signals: SelfPipe,
    linger: float | None,
) -> tuple[int, bool]:
    """Run an attempt as `run_attempt` does; return the exit code, and whether the job has a final outcome."""
    started, began = time(), monotonic()
    host = host_of(environment, hosts=arguments.hosts)
    restarts = restarts_of(environment, host)
    signer = Signer(_signing_key(environment))
    store = open_store(parse_location(arguments.store))
    job = JobObjects(arguments.job)
    try:
        claim = partial(_claim, arguments.job, host, _pod_name(environment), started, restarts)
        agree = partial(_agree, arguments, store, job, host, signer, signals, claim)
        attempt = retry_in_new_pod(
            lambda: _agree_despite_outages(agree, arguments.lifeline is None, signals.wait),
            seconds=_new_pod_seconds(arguments, began),
            pause=signals.wait,
            warn=print_line,
        )
    except AlreadyFinishedError as error:
        sys.stderr.write(f"[kinetic] {error}\n")
        return EXIT_SUCCESS if error.succeeded else EXIT_FUNCTION_FAILED, True
    except AlreadyClaimedError as error:
        sys.stderr.write(f"[kinetic] {error}\n")
        return EXIT_NOT_PREPARED, False
    except (KineticError, OSError):
        if not signals.stop_requested:
            raise
        return EXIT_TERMINATED, False
    if attempt is None:
        return EXIT_TERMINATED, False
    reporter = _reporter(arguments, store, job, host, signals, signer)
    marker = end_marker(job.job_id, attempt, host.index) if arguments.end_marker else ""
    alone = restarts is None and arguments.attempt is None and host.count > 1
    if _is_refused(reporter, attempt, arguments.preemptions, marker, replaced_alone=alone):
        return EXIT_NOT_PREPARED, True
    child.adopt_orphans()  # Before user code starts: earlier orphans would not be found.
    task = _task(
        arguments,
        attempt,
        host,
        child,
        linger=linger or _LINGER,
        signed=signer.key is not None,
        new_pod_seconds=_new_pod_seconds(arguments, began),
    )
    child.send_task(task.encode())
    claim_seconds = monotonic() - began
    blank = _blank(arguments.job, attempt, host, environment, started)
    log = LogUploader(store, partial(job.log_chunk, attempt, host.index))
    watch = Watch(
        child,
        signals,
        tee=Tee(sys.stdout.fileno()),
        log=log,
        limits=_limits(arguments, host, linger),
        lifeline=arguments.lifeline,
        report_file=task.report_file,
        stop_file=task.stop_file,
    )
    reporter.log = partial(_log_late, watch, log)
    code = _watch_and_report(
        watch,
        log,
        reporter,
        blank,
        claim_seconds=claim_seconds,
        in_container=arguments.lifeline is None,
    )
    if marker and reporter.reported:
        watch.mark_end(marker)
        watch.tee.finish(_READER_SECONDS)
    return code, reporter.job_ended


def _pod_name(environment: Mapping[str, str]) -> str:
    return environment.get(Env.POD_NAME) or os.uname().nodename


def _agree_despite_outages(
    agree: Callable[[], int | None],
    in_pod: bool,
    pause: Callable[[float], bool],
) -> int | None:
    """Return what *agree* returns; in a pod, repeat it while the store does not respond.

    A pod must not end because of an outage: the exit code 2 would end the job. A supervisor decides by itself.
    """
    if not in_pod:
        return agree()
    warned: list[Exception] = []

    def warn_once(error: Exception) -> None:
        if not warned:
            warned.append(error)
            print_line(f"The attempt cannot be claimed yet: {error} Retrying until it can.")

    return retry(agree, seconds=inf, pause=pause, final=REFUSED, on_failure=warn_once)


def _agree(
    arguments: Arguments,
    store: Store,
    job: JobObjects,
    host: Host,
    signer: Signer,
    signals: SelfPipe,
    claim: Callable[[int], Claim],
) -> int | None:
    """Claim the attempt to run; return its number, None if a stop was requested before."""
    if host.count == 1 or arguments.attempt is not None:
        return claim_attempt(
            store,
            job,
            host,
            attempt=arguments.attempt,
            claim_of=claim,
            pause=signals.wait,
            signer=signer,
        )
    from kinetic_runner.parent.agreement import Agreement, StoppedError

    agreement = Agreement(
        store=store,
        job=job,
        host=host,
        signer=signer,
        restarts=claim(1).restarts,
        claim=claim,
        pause=signals.wait,
        log=print_line,
        refused_seconds=arguments.report_seconds,
    )
    try:
        return agreement.reach()
    except StoppedError:
        return None


def _reporter(
    arguments: Arguments,
    store: Store,
    job: JobObjects,
    host: Host,
    signals: SelfPipe,
    signer: Signer,
) -> Reporter:
    alone = arguments.lifeline is None
    retries = arguments.retries
    if retries is None and arguments.idle:
        retries = 0  # No other process decides whether the system starts the container again.
    return Reporter(
        store=store,
        job=job,
        host=host,
        pause=signals.wait,
        retries=retries,
        silent_failures=arguments.idle,
        other_hosts_seconds=inf if alone else OTHER_HOSTS_SECONDS,
        linger=arguments.grace + _AFTER_GRACE if alone and host.count > 1 else 0.0,
        signer=signer,
        pending_uploads=PendingUploads(arguments.pending_uploads)
        if arguments.pending_uploads
        else None,
        seconds=arguments.report_seconds,
    )


def _limits(arguments: Arguments, host: Host, linger: float | None) -> TimeLimits:
    return TimeLimits(
        timeout=arguments.timeout,
        grace=arguments.grace,
        linger=linger or (_LINGER if host.count == 1 else _LINGER_TOGETHER),
        linger_after_failure=linger or _LINGER,
    )


def _is_refused(
    reporter: Reporter, attempt: int, preemptions: int | None, marker: str, *, replaced_alone: bool
) -> bool:
    """End the job instead of running *attempt* if that is of no use; print why.

    That is so if too many attempts were preempted, or were killed without a report, and, where each host is
    *replaced_alone*, if one will not run again.
    """
    refusal = ""
    if preemptions is not None:
        refusal = reporter.refuse_if_preempted(attempt, preemptions)
    if not refusal:
        refusal = reporter.refuse_if_out_of_retries(attempt)
    if replaced_alone and not refusal:
        refusal = reporter.refuse_if_host_is_over(attempt)
    if refusal:
        reporter.warn(refusal)
        if marker:
            tee = Tee(sys.stdout.fileno())  # It ignores a closed reader.
            tee.write(f"{marker}\n".encode())
            tee.finish(_READER_SECONDS)
    return bool(refusal)


def _watch_and_report(
    watch: Watch,
    log: LogUploader,
    reporter: Reporter,
    blank: HostOutcome,
    *,
    claim_seconds: float,
    in_container: bool,
) -> int:
    """Watch the child to its end, store its log, and report; return the exit code.

    *blank* names job, attempt and host; claiming the attempt took *claim_seconds*.
    """
    kills = oom_kills()
    end = watch.run(lambda: _was_oom_killed(kills))
    blank = replace(blank, finished_at=time(), peak_memory=peak_memory(in_container=in_container))
    end = replace(end, memory_limit=memory_limit() if in_container else None)
    outcome = outcome_of(_with_claim(end, claim_seconds), blank)
    lost = bool(reporter.linger) and is_loss_of_peer(outcome)
    outcome = replace(outcome, lost_peer=True if lost else None)
    upload_seconds = _SERVICE_UPLOAD_SECONDS if reporter.store.concurrency > 1 else _UPLOAD_SECONDS
    reader = _READER_SECONDS
    if end.cause == "orphaned":
        reporter.seconds = _ORPHAN_SECONDS
        reader = 0.0
    reporter.keep(outcome)  # First: uploading the log may take minutes.
    warnings = _close(watch, log, seconds=min(upload_seconds, reporter.seconds), reader=reader)
    return _report(reporter, replace(outcome, warnings=(*outcome.warnings, *warnings)))


def _log_late(watch: Watch, log: LogUploader, text: str) -> None:
    """Add a line to a log that is already closed."""
    watch.log_line(text)
    log.close(_LATE_SECONDS)


def _signing_key(environment: Mapping[str, str]) -> bytes | None:
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
        text = f"[kinetic] The outcome could not be stored: {error}\n"
        if reporter.pending_uploads is not None and reporter.pending_uploads.host_outcomes():
            text += f"[kinetic] It is kept in {reporter.pending_uploads.folder}. To store it, run on this "
            text += f"machine: kinetic jobs result {outcome.job_id}\n"
        sys.stderr.write(text)
        return outcome.exit_code or EXIT_FUNCTION_FAILED


def _claim(
    job_id: str, host: Host, hostname: str, now: float, restarts: int | None, attempt: int
) -> Claim:
    return Claim(
        job_id=job_id,
        attempt=attempt,
        host=host.index,
        hostname=hostname,
        pid=os.getpid(),
        claimed_at=now,
        restarts=restarts,
    )


def _blank(
    job_id: str, attempt: int, host: Host, environment: Mapping[str, str], started: float
) -> HostOutcome:
    """Return an outcome that says where the attempt ran, before it is known how it ended."""
    return HostOutcome(
        job_id=job_id,
        attempt=attempt,
        host=host.index,
        succeeded=False,
        reason="unreported",
        phase="claim",
        exit_code=EXIT_TERMINATED,
        started_at=started,
        python=".".join(map(str, sys.version_info[:3])),
        hostname=os.uname().nodename,
        node=environment.get(Env.NODE_NAME) or None,
        devices_expected=environment.get(Env.DEVICES) or None,
    )


def _task(
    arguments: Arguments,
    attempt: int,
    host: Host,
    child: Child,
    *,
    linger: float,
    signed: bool,
    new_pod_seconds: float,
) -> Task:
    return Task(
        store=arguments.store,
        job_id=arguments.job,
        attempt=attempt,
        host=host.index,
        hosts=host.count,
        payload_digest=arguments.payload_digest,
        context_digest=arguments.context_digest,
        environment_digest=arguments.environment_digest,
        workspace=arguments.workspace,
        report_file=f"{arguments.workspace}/.report-{child.mark}",
        stop_fd=child.stop_fd,
        stop_file=f"{arguments.workspace}/.stop-{child.mark}",
        # Only a supervisor reports when the other hosts have ended.
        hold=arguments.lifeline is not None,
        linger=linger,
        keep_inputs=arguments.keep_inputs,
        debug_port=arguments.debug_port,
        private_mounts=arguments.private_mounts,
        pending_uploads=arguments.pending_uploads,
        report_seconds=arguments.report_seconds,
        new_pod_seconds=new_pod_seconds,
        signed=signed,
    )


def _new_pod_seconds(arguments: Arguments, began: float) -> float:
    """Return for how long rejected credentials are retried: only in a pod, where there is no supervisor."""
    is_pod = arguments.lifeline is None
    return max(0.0, began + NEW_POD_SECONDS - monotonic()) if is_pod else 0.0


def _close(watch: Watch, log: LogUploader, *, seconds: float, reader: float) -> tuple[str, ...]:
    """Finish the stored log and the live one; return a warning if output was lost."""
    log.close(seconds)
    warnings: tuple[str, ...] = ()
    if log.lost:
        why = log.error or "the store did not answer in time."
        text = f"{log.lost} bytes of the log could not be stored: {why}"
        watch.log_line(text)
        warnings = (text,)
    watch.tee.finish(reader)
    return warnings


def _was_oom_killed(kills_before: int | None) -> bool | None:
    after = oom_kills()
    return None if kills_before is None or after is None else after > kills_before


def _with_claim(end: ChildEnd, seconds: float) -> ChildEnd:
    return replace(end, phases={"claim": round(seconds, 6), **end.phases})
