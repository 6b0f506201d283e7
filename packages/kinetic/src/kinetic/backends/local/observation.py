"""Observation of a job on this machine, from its folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from kinetic.backends.backend import AttemptView, Ending, Observation
from kinetic.backends.local.supervisor.state import read_state
from kinetic.home.liveness import is_alive, is_reporting
from kinetic.home.paths import JobFolder
from kinetic.job_status import JobStatus
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.pending_uploads import PendingUploads

REPORTING: Final = (
    "The job's supervisor died. Its runner is alive and may still report the result; "
    "the job waits for that."
)

NEVER_STARTED: Final = "The submitting process was killed before it started the job: nothing of it ran. Submit it again."


def observe_folder(job_id: str, folder: JobFolder) -> Observation | None:
    """Return the observation of the job in *folder*; None if there is no such folder."""

    alive = is_alive(folder)  # Checked first: a dead supervisor cannot change the state any more.
    state = read_state(folder.state)
    if not alive and not is_there(folder):
        return None
    reporting = not alive and is_reporting(folder)
    attempts = tuple(
        AttemptView(
            one["number"],
            one["hosts"],
            one["state"] if alive or reporting or one["state"] != "running" else "unknown",
            one["message"],
        )
        for one in (state["attempts"] if state else ())
    )
    reason = state["reason"] if state is not None else ""
    running = alive or reporting
    pending = _kept(job_id, folder, attempts, running=running, reason=reason)
    if pending is not None and not reporting:
        return pending
    if pending is None and state is not None and state["status"] != "running":
        ending = Ending.REPORTED if alive else Ending.VANISHED
        return Observation(JobStatus[state["status"].upper()], reason, attempts, ending)
    if alive:
        if state is not None:
            return Observation(JobStatus.RUNNING, reason, attempts)
        if has_begun(folder):
            return Observation(JobStatus.RUNNING)
        return Observation(JobStatus.PENDING, "Its supervisor is starting.")

    if reporting:
        seen = pending or Observation(JobStatus.RUNNING, "", attempts)
        return replace(seen, reason=f"{REPORTING} {seen.reason}".rstrip())
    before_start = state is None and not has_begun(folder)
    known = (trouble_of(folder), how_it_ended(folder, before_start), reason)
    why = " ".join(filter(None, known))
    return Observation(JobStatus.FAILED, why, attempts, Ending.VANISHED)


def _kept(
    job_id: str,
    folder: JobFolder,
    attempts: tuple[AttemptView, ...],
    *,
    running: bool,
    reason: str,
) -> Observation | None:
    """Return the observation of a job whose result is in its *folder*; None without such a result.

    *reason* is the last reason that the supervisor wrote. While the supervisor or a runner is *running*, that
    process stores the result; afterwards a client stores it when it collects the result.
    """
    kept = PendingUploads(folder.pending_uploads)
    reports = kept.host_outcomes()
    if running and (reports or kept.trouble):
        storing = "The function has ended, and its result is being stored."
        ending = Ending.KEPT if reports else Ending.REPORTED
        return Observation(JobStatus.RUNNING, kept.trouble or reason or storing, attempts, ending)
    if not reports:
        return None
    returned = all(fields_of(data).get("succeeded") for data in reports.values())
    why = (
        f"The function has {'returned' if returned else 'failed'}, and its result is not in the store "
        f"yet: it is kept in {folder.pending_uploads}. Store it from this machine with: kinetic jobs result "
        f"{job_id}"
    )
    why = f"{why}. {reason}" if reason else why
    return Observation(JobStatus.FAILED, why, attempts, Ending.KEPT, folder.pending_uploads)


def trouble_of(folder: JobFolder) -> str:
    """Return why the job's result could not be written to its folder either; empty if it could."""
    return PendingUploads(folder.pending_uploads).trouble


def is_there(folder: JobFolder) -> bool:
    """Return whether the job has a folder here."""
    return os.path.isdir(folder.path)  # noqa: PTH112 - called often


def has_begun(folder: JobFolder) -> bool:
    """Return whether a runner may have been started; the supervisor writes its state a moment later."""
    return os.path.isdir(folder.attempt(1))  # noqa: PTH112 - called often


def how_it_ended(folder: JobFolder, before_start: bool) -> str:
    """Return how the supervisor of the job in *folder* ended, as far as it is known.

    *before_start*: no runner was started.
    """
    output = ""
    try:
        lines = Path(folder.supervisor_log).read_text(errors="replace").strip().splitlines()
        output = f". Its last output: {lines[-1]}" if lines else ""
    except FileNotFoundError:
        pass
    if before_start and not output:
        return "The submitting process or the supervisor ended before the job was started."
    return f"The job's supervisor died{output or ': it was killed, or the machine went down.'}"
