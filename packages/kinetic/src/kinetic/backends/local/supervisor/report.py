"""Write how an attempt ended: outcomes of hosts that did not report, and the outcome of the job."""

from __future__ import annotations

import os
import platform
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kinetic.backends.local.supervisor.attempt import Verdict
from kinetic.jobs.outcome import StopReason, end_from, outcome_of, read_end, stored_outcome
from kinetic_payload.errors import RecordError
from kinetic_payload.layout import (
    EXIT_FUNCTION_FAILED,
    EXIT_NOT_PREPARED,
    EXIT_TERMINATED,
    JobObjects,
)
from kinetic_payload.records.attempt_result import HostEnd, deciding
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.records.host_outcome import HostOutcome
from kinetic_payload.records.retry import Tally, another_attempt
from kinetic_payload.records.signing import UNSIGNED, Signer
from kinetic_payload.records.storage import write_once
from kinetic_payload.stores.store import Store


@dataclass(frozen=True, kw_only=True)
class EndedRunner:
    """A runner that ended."""

    host: int
    status: int | None
    """As returned by `waitpid`; None if the runner was never started."""
    ended_by_us: bool = False
    """Whether a signal from the supervisor ended it."""
    first: bool = False
    """Whether it failed before the others were asked to stop."""
    note: str = ""
    """A further fact about its end, for instance that it ran out of memory."""
    printed: str = ""
    """The error that the runner printed, if it could not prepare the call."""


def report_attempt(
    store: Store,
    job_id: str,
    attempt: int,
    ended: Sequence[EndedRunner],
    *,
    retries: int,
    started_at: float,
    stop: StopReason | None = None,
    signer: Signer = UNSIGNED,
) -> Verdict:
    """Complete the reports of an ended *attempt*; write the job's outcome unless another attempt follows."""
    ends = [_end_of(store, job_id, attempt, runner, started_at, signer) for runner in ended]
    chosen = deciding(ends)
    name = JobObjects(job_id).outcome
    if (
        stop is None
        # A local job is not preempted: a runner is stopped only on purpose. So all earlier attempts failed.
        and another_attempt(chosen, Tally(failures=attempt - 1), retries=retries, preemptions=0)
        # It may have been cancelled from another machine.
        and stored_outcome(store, job_id, signer.verify) is None
    ):
        return Verdict(succeeded=False, retry=True, message=chosen.message)
    outcome = outcome_of(job_id, attempt, ends, stop=stop)
    try:
        written = fields_of(write_once(store, signer, name, encode(outcome)))
    except RecordError as error:
        return Verdict(
            succeeded=False, message=f"The job's outcome cannot be stored: {error.message}"
        )
    return Verdict(
        succeeded=written.get("status") == "succeeded", message=str(written.get("message", ""))
    )


def _end_of(
    store: Store, job_id: str, attempt: int, ended: EndedRunner, started_at: float, signer: Signer
) -> HostEnd:
    reported = read_end(store, job_id, attempt, ended.host, signer.verify)
    if reported is None:
        outcome = _unreported_end(store, job_id, attempt, ended, started_at)
        name = JobObjects(job_id).host_outcome(attempt, ended.host)
        reported = end_from(ended.host, write_once(store, signer, name, encode(outcome)))
    message = reported.message
    if ended.note and not reported.succeeded and ended.note != message:
        message = f"{ended.note} {message}".strip()
    return replace(reported, message=message, first=ended.first)


def _unreported_end(
    store: Store, job_id: str, attempt: int, ended: EndedRunner, started_at: float
) -> HostOutcome:
    """Return the outcome of a runner that ended without writing one."""
    number = code = None
    if ended.status is None:
        reason, message = "unreported", ended.note or "The runner was not started."
    elif os.WIFSIGNALED(ended.status):
        number = os.WTERMSIG(ended.status)
        if ended.ended_by_us:
            reason, message = "terminated", f"The runner was stopped by {_name(number)}."
        else:
            reason, message = "killed", f"The runner was killed by {_name(number)}."
    else:
        code = os.waitstatus_to_exitcode(ended.status)
        terminated = code == EXIT_TERMINATED
        reason = "terminated" if terminated else "unreported"
        message = f"The runner ended with exit code {code} and reported no reason."
        if ended.printed:
            message = f"The runner ended with exit code {code}: {ended.printed}"
    claimed = store.stat(JobObjects(job_id).claim(attempt, ended.host)) is not None
    exit_code = code if code is not None else 128 + number if number is not None else None
    if exit_code is None:
        exit_code = EXIT_NOT_PREPARED
    return HostOutcome(
        job_id=job_id,
        attempt=attempt,
        host=ended.host,
        succeeded=False,
        reason=reason,  # type: ignore[arg-type]
        phase="call" if claimed else "claim",
        exit_code=exit_code or EXIT_FUNCTION_FAILED,
        message=message,
        signal=number,
        started_at=started_at,
        finished_at=time.time(),
        python=platform.python_version(),
        hostname=socket.gethostname(),
    )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
