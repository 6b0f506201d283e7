"""Wait for the end of a job, through outages and refusals of its backend and its store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, Final

from kinetic.backends.backend import Ending
from kinetic.errors import JobError, JobFailedError, JobNotFoundError, ResultTimeoutError
from kinetic.job_status import JobStatus
from kinetic.jobs.records import store_kept
from kinetic.jobs.services import LOOK, Services
from kinetic.jobs.status import View, asking, explained, look, nothing_to_verify
from kinetic.notices import LOGINS
from kinetic.waiting import Backoff, Deadline, sleep
from kinetic_payload.errors import (
    CredentialsError,
    KineticError,
    LoginRequiredError,
    StoreError,
    StorePermissionError,
    UnavailableError,
)
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.outages import OutageLimit, limited

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation, Watch

log = logging.getLogger("kinetic")


StatusCallback = Callable[[JobStatus], None]


class WaitStopped(Exception):  # noqa: N818 - not an error: the caller ended the wait
    """The caller ended the wait."""


def wait_for_outcome(
    record: JobRecord,
    services: Services,
    deadline: Deadline,
    *,
    on_status_change: StatusCallback | None = None,
    stop: threading.Event | None = None,
    verify: Callable[[], None] = nothing_to_verify,
    warn: Callable[[str], None] = log.warning,
    waiting: Callable[[Watch], object] | None = None,
) -> View:
    """Wait until the job has a durable outcome; return the view that contains it.

    *waiting* is called with the watch, so that the thread that sets *stop* can wake this one. *verify* is
    called at each look, so that a result that will be refused is not awaited for hours. *warn* is called
    once for each problem that keeps the job from ending, and for an outcome that is not the job's. An
    unreachable backend does not end the wait. Nor does a store that is unreachable or refuses access,
    while the job runs on this machine.

    Raises:
        ResultTimeoutError: The deadline passed; the job continues.
        JobNotFoundError: There is neither an outcome nor a resource.
        JobFailedError: The job's supervisor has been silent for too long; it may come back.
        StoreError: The job has ended, and its result cannot be stored yet; it is kept where the job ran.
        StoreUnavailableError: The store is not responding, and the job does not run on this machine.
        StorePermissionError: The store refuses access, and the job does not run on this machine.
        CredentialsError, LoginRequiredError: There were no credentials when the wait began.
        KineticError: The backend does not permit a look, or is not the job's.
    """
    with services.backend.watch([record]) as watch:
        if waiting is not None:
            waiting(watch)
        return _wait_for_outcome(
            record,
            services,
            deadline,
            watch,
            on_status_change=on_status_change,
            stop=stop,
            verify=verify,
            warn=warn,
        )


def _wait_for_outcome(
    record: JobRecord,
    services: Services,
    deadline: Deadline,
    watch: Watch,
    *,
    on_status_change: StatusCallback | None,
    stop: threading.Event | None,
    verify: Callable[[], None],
    warn: Callable[[str], None],
) -> View:
    last: JobStatus | None = None
    troubles = _TroubleWarnings(record, services, warn)
    lost: Deadline | None = None
    outage, backoff, pace = _Outage(record, services, warn), pauses(), Pace()
    while True:
        with outage:
            view = look(record, services, verify=verify)
        if outage.error is not None:
            if stop is not None and stop.is_set():
                raise WaitStopped
            if deadline.passed:
                raise _timed_out(record, last, outage.error.message)
            outage.pause(deadline)
            continue
        if view.status is not last:
            last = view.status
            _notify(on_status_change, view.status)
        if view.outcome is not None:
            return view
        if view.seen is not None and view.seen.kept_in:
            store_kept(services, record.job_id, view.seen.kept_in)
            continue
        if view.status is JobStatus.NOT_FOUND or view.removed:
            raise not_found(record, view.status)
        if stop is not None and stop.is_set():
            raise WaitStopped
        with outage:
            troubles.look(view)
        lost = (lost or Deadline(_LOST)) if view.ending is Ending.LOST else None
        if lost is not None and (lost.passed or deadline.passed):
            raise _lost(record, view.reason)
        if deadline.passed:
            raise _timed_out(record, view.status, _why(record, view, services))
        longest = pace.after(view) if lost is None else lost.at_most(_LONGEST_WAIT)
        reached = False
        with outage, asking(record):
            watch.wait(deadline.at_most(longest))
            reached = True
        if reached:
            backoff.reset()
        else:  # Pause here: if the next look succeeds, it does not pause.
            sleep(deadline.at_most(backoff.next()))


def _why(record: JobRecord, view: View, services: Services) -> str:
    """Return why the job has not ended, even if its backend cannot be reached."""
    try:
        return explained(record, view, services)
    except UnavailableError:
        return view.reason


_LONGEST_WAIT = 30.0
"""Seconds until the next look at a job, so that a lost wake-up does no harm."""


class Pace:
    """How long a wait lasts at most until the next look.

    The longer a job has not changed whose end no watch shows, the less often it is looked at: its accelerator idles
    for a small share of the time that it was used.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: object = None
        self._since = clock()

    def after(self, view: View) -> float:
        """Return the seconds until the next look after *view*."""
        now, seen = self._clock(), view.seen
        state = (view.status, seen and seen.attempts)
        if state != self._state:
            self._state, self._since = state, now
        if seen is None or seen.ending is not Ending.SILENT:
            return _LONGEST_WAIT
        return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, (now - self._since) * _IDLE_SHARE))


_SHORTEST_WAIT = 1.0
_IDLE_SHARE = 0.05


_LOST = 30.0
"""Seconds that a silent supervisor gets to come back: the network may have been down."""


_LOGIN: Final = (LoginRequiredError, CredentialsError)
"""Errors that pass when a person logs in again."""
_PASSING: Final = (UnavailableError, StorePermissionError, *_LOGIN)
"""Errors that may pass while the job runs: tokens are renewed, and permissions return."""


def pauses() -> Backoff:
    """Return the pauses between two tries: some errors, such as a refusal, arrive immediately."""
    return Backoff(0.25, 2.0)


class _Outage:
    """A block that catches errors which may pass: of the backend, and of the store of a job that runs here.

    An expired login passes only after a block that reached both: a wait does not begin without credentials.
    For a job that runs on this machine each block waits only briefly, so that the deadline, a stop and
    the job's end are noticed.
    """

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self.error: KineticError | None = None
        """The error of the latest block."""
        self._record = record
        self._services = services
        self._warn = warn
        self._limit: ExitStack | None = None
        self._pauses = pauses()
        self._warned: set[str] = set()
        self._reached = False

    def __enter__(self) -> None:
        if _runs_here(self._record, self._services):
            self._limit = ExitStack()
            self._limit.enter_context(limited(OutageLimit(LOOK, quiet=inf)))

    def __exit__(self, kind: object, error: BaseException | None, *rest: object) -> bool:
        before, limit = self.error, self._limit
        self.error = self._limit = None
        if limit is not None:
            limit.close()
        if error is None:
            self._pauses.reset()
            self._reached = True
        if not isinstance(error, _PASSING) or not self._passes(error, here=limit is not None):
            return False
        self.error = error
        job_id = self._record.job_id
        consequence = f"The wait for job {job_id} goes on."
        if limit is not None:
            consequence = f"Job {job_id} runs on this machine, so the wait for it goes on."
        # Each request names itself in its error, but there is one login.
        login = (isinstance(error, _LOGIN) and error.hint) or ""
        if login:
            is_new = LOGINS.is_new(login)
        else:
            is_new = before is None and error.message not in self._warned
            self._warned.add(error.message)
        if is_new:
            text = f"{error.message} {login}".rstrip()
            self._warn(f"{text if text.endswith('.') else f'{text}.'} {consequence}")
        return True

    def _passes(self, error: KineticError, *, here: bool) -> bool:
        """Return whether *error*, which may pass, is waited for; *here*: the job runs on this machine."""
        if isinstance(error, _LOGIN):
            return self._reached or (here and isinstance(error, StoreError))
        return here or not isinstance(error, StoreError)

    def pause(self, deadline: Deadline) -> None:
        """Pause before the next look, not beyond *deadline*."""
        sleep(deadline.at_most(self._pauses.next()))


def _runs_here(record: JobRecord, services: Services) -> bool:
    """Return whether the job certainly runs on this machine, without a request to its store."""
    try:
        return services.backend.forward(record) is None
    except JobError:
        return False


class _TroubleWarnings:
    """Warns the user once of each problem that keeps an awaited job from ending."""

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self._record = record
        self._services = services
        self._warn = warn
        self._warned: set[str] = set()
        self._seen: Observation | None = None
        self._again = Deadline(0.0)

    def look(self, view: View) -> None:
        """Let the backend explain the job's state, if it has changed or the last explanation is old."""
        if view.forged is not None:
            self._warn_once(
                f"{view.forged.message} Job {self._record.job_id} runs on; the wait for it goes on."
            )
        if view.seen is None or (view.seen == self._seen and not self._again.passed):
            return
        with asking(self._record):
            found = self._services.backend.explain(self._record, view.seen)
        self._seen, self._again = view.seen, Deadline(_EXPLAINED_EVERY)
        if found.trouble:
            self._warn_once(f"Job {self._record.job_id} is {view.status.value}: {found.text}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


_EXPLAINED_EVERY = 30.0
"""Seconds between two explanations of why a job waits: on a cluster they cost requests."""


def _notify(callback: StatusCallback | None, status: JobStatus) -> None:
    if callback is None:
        return
    try:
        callback(status)
    except Exception:
        log.exception(
            "on_status_change raised for %s; the result is collected all the same", status
        )


def not_found(record: JobRecord, status: JobStatus) -> JobNotFoundError:
    """Return the error for a job of which nothing is left to collect."""
    if status is JobStatus.NOT_FOUND:
        return JobNotFoundError(
            f"Job {record.job_id} has neither an outcome nor a resource.",
            hint="It was cleaned up, or never started.",
            job_id=record.job_id,
        )
    return JobNotFoundError(
        f"Job {record.job_id} is {status.value}, and its artifacts were removed from the store: "
        "there is nothing to collect any more.",
        hint="It was cleaned up; run it again.",
        job_id=record.job_id,
    )


def _lost(record: JobRecord, reason: str) -> JobFailedError:
    return JobFailedError(
        f"Job {record.job_id} failed, as far as is known here: {reason}",
        hint="If its supervisor comes back, call result() again. To give the job up: "
        f"kinetic jobs cancel {record.job_id}",
        job_id=record.job_id,
    )


def _timed_out(record: JobRecord, status: JobStatus | None, reason: str) -> ResultTimeoutError:
    because = f" ({reason})" if reason else ""
    known = f"is still {status.value}" if status is not None else "was not seen to end"
    return ResultTimeoutError(
        f"Job {record.job_id} {known}{because}; the wait was given up.",
        hint=f"It is not cancelled. Come back with kinetic.attach({record.job_id!r}).result().",
        job_id=record.job_id,
    )
