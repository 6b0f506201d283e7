"""What is known of a job whose supervisor is gone and that has no outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from kinetic.backends import Observation
from kinetic.job_status import JobStatus
from kinetic.local.paths import JobFolder
from kinetic.local.reporting import Verify, outcome_of, read_end
from kinetic.local.verdict import deciding
from kinetic_payload.layout import JobObjects
from kinetic_payload.ownership import number_in
from kinetic_payload.records import JobRecord, Outcome
from kinetic_payload.store import Store

REPORTING: Final = (
    "The job's supervisor died. Its runner is alive and may still report the result: "
    "that is waited for."
)

NEVER_STARTED: Final = "The submitting process was killed before it started the job: nothing of it ran. Submit it again."


def last_words(folder: JobFolder, before_start: bool) -> str:
    """Return how the supervisor of the job in *folder* ended, as far as is known.

    *before_start*: no runner was started.
    """
    said = ""
    try:
        lines = Path(folder.supervisor_log).read_text(errors="replace").strip().splitlines()
        said = f" Its last words: {lines[-1]}" if lines else ""
    except FileNotFoundError:
        pass
    if before_start and not said:
        return "The submitting process or the supervisor ended before the job was started."
    return f"The job's supervisor died: it was killed, or the machine went down.{said}"


def outcome_of_vanished(
    store: Store, record: JobRecord, observation: Observation, *, now: float, verify: Verify
) -> Outcome:
    """Return the outcome that the hosts' reports support, or one that says how it vanished.

    If all hosts of the last attempt succeeded, so did the job; if one failed by itself, that is
    why. What a host says that merely lost its supervisor explains nothing.
    """
    attempt = _last_attempt(store, record)
    found = [read_end(store, record.job_id, attempt, host, verify) for host in range(record.hosts)]
    ends = [end for end in found if end is not None]
    if ends:
        chosen = deciding(ends)
        complete = len(ends) == record.hosts
        if (chosen.succeeded and complete) or chosen.reason in ("exception", "exited", "timeout"):
            outcome = outcome_of(record.job_id, attempt, ends, stop=None)
            return replace(outcome, written_by="client", written_at=now)
    message = observation.reason or (
        "Nothing of the job is on this machine: its submit was interrupted, or its folder removed."
    )
    if observation.status is JobStatus.SUCCEEDED:
        message = "It ran to its end, but what it reported was removed from the store since."
    return Outcome(
        job_id=record.job_id,
        status="failed",
        attempt=attempt or None,
        message=message,
        written_by="client",
        written_at=now,
    )


def _last_attempt(store: Store, record: JobRecord) -> int:
    prefix = JobObjects(record.job_id).attempts
    found = (number_in(name.removeprefix(prefix)[:-1]) for name in store.folders(prefix))
    # There is one attempt more than retries, whatever somebody else put there.
    return max((number for number in found if number and number <= record.retries + 1), default=0)
