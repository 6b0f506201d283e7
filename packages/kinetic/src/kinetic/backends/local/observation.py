"""Observe a job on this machine, from its folder in the home that keeps it, if that can be read from here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

from kinetic.backends.backend import AttemptView, Ending, Observation
from kinetic.backends.local.supervisor.state import read_state
from kinetic.home.liveness import is_alive, is_reporting
from kinetic.home.paths import Home, JobFolder
from kinetic.home.queue import why_waiting
from kinetic.job_status import JobStatus
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.job import Keeper
from kinetic_payload.records.pending_uploads import PendingUploads

REPORTING: Final = (
    "The job's supervisor died. Its runner is alive and may still report the result; "
    "the job waits for that."
)

NEVER_STARTED: Final = "The submitting process was killed before it started the job: nothing of it ran. Submit it again."


def observe_folder(home: Home, job_id: str) -> Observation | None:
    """Return the observation of the job in its folder in *home*; None if there is no such folder."""
    folder = home.job(job_id)
    waits = is_waiting(folder)  # Checked first: it is alive before it waits no more.
    alive = is_alive(folder)  # Checked first: a dead supervisor cannot change the state any more.
    if waits and not alive:
        return Observation(JobStatus.PENDING, why_waiting(home, job_id))
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


def is_waiting(folder: JobFolder) -> bool:
    """Return whether the job waits for other local jobs to end."""
    return os.path.exists(folder.waiting)  # noqa: PTH110 - called often


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


_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class Unreachable(Enum):
    """Why the folder of a job cannot be read."""

    AWAY = "it is on another machine, or in another container"
    NOT_PERMITTED = "its files may not be read by this user"
    GONE = "it was on this machine, and is not there any more"


def keeper_of(home: Home) -> Keeper:
    """Return the description of *home* for the records of its jobs."""
    return Keeper(
        home=home.path, machine=os.uname().nodename, boot=boot_id(), inode=_inode(home.path)
    )


def home_of(
    keeper: Keeper | None, job_id: str, own: Home, *, boot: Callable[[], str] | None = None
) -> Home | Unreachable:
    """Return the home in which to look for the folder of a job that *keeper* keeps.

    If the job has no folder there, it certainly does not run. *own* is the home of this process, and *boot*
    returns the id of the kernel's current run. Records of early versions name no keeper: it is *own*.
    """
    if keeper is None:
        return own
    here = (boot or boot_id)()
    if keeper.machine != os.uname().nodename and not (here and keeper.boot == here):
        return Unreachable.AWAY
    homes = [own] if keeper.home == own.path else [own, Home(keeper.home)]
    for home in homes:
        path = home.job(job_id).path
        try:
            os.stat(path)  # noqa: PTH116 - called often
        except PermissionError:
            return Unreachable.NOT_PERMITTED
        except OSError:
            continue
        # A job's id is unique, so this is its folder, even if it was moved.
        return home if os.access(path, os.R_OK | os.X_OK) else Unreachable.NOT_PERMITTED
    for home in homes:
        # The path alone is not enough: another container may have the same path, or the home was recreated.
        if here and (keeper.boot, keeper.inode) == (here, _inode(home.path)):
            return home
    # On the job's machine, the loop above finds the home. Under another host name this is another container.
    return Unreachable.GONE if keeper.machine == os.uname().nodename else Unreachable.AWAY


def _inode(path: str) -> str:
    try:
        found = os.stat(path)  # noqa: PTH116 - called often
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@cache
def boot_id() -> str:
    """Return the id of this run of the kernel; empty if the system has none."""
    if sys.platform == "darwin":
        return _boot_session()
    try:
        with open(_BOOT_ID, encoding="ascii") as stream:  # noqa: PTH123 - read at each start
            return stream.read().strip()
    except OSError:
        return ""


def _boot_session() -> str:
    import ctypes

    size = ctypes.c_size_t(64)
    text = ctypes.create_string_buffer(size.value)
    try:
        call = ctypes.CDLL(None).sysctlbyname
        failed = call(b"kern.bootsessionuuid", text, ctypes.byref(size), None, ctypes.c_size_t(0))
    except (OSError, AttributeError):
        return ""
    return "" if failed else text.value.decode("ascii", "replace")
