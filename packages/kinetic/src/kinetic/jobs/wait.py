"""Wait for the end of a job, through outages and refusals of its backend and its store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from kinetic.backends.backend import Ending, never
from kinetic.errors import JobError, JobFailedError, JobNotFoundError, ResultTimeoutError
from kinetic.job_status import JobStatus
from kinetic.jobs.outages import LOGIN, PASSING, Outages, WaitStopped, patiently
from kinetic.jobs.pending import PendingNotes
from kinetic.jobs.records import store_kept
from kinetic.jobs.services import LOOK, Services
from kinetic.jobs.status import View, asking, explained, look, nothing_to_verify
from kinetic.waiting import Deadline
from kinetic_payload.errors import KineticError, StoreError, UnavailableError
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.outages import OutageLimit

if TYPE_CHECKING:
    from kinetic.backends.backend import Observation, Watch

log = logging.getLogger("kinetic")


StatusCallback = Callable[[JobStatus], None]


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
    on_reason: Callable[[str], object] | None = None,
) -> View:
    """Wait until the job has a durable outcome; return the view that contains it.

    *waiting* is called with the watch, so that the thread that sets *stop* can wake this one. *verify* is
    called at each look, so that a result that will be refused is not awaited for hours. *warn* is called
    once for each problem that keeps the job from ending, and for an outcome that is not the job's; *on_reason* with
    each reason why the job does not run yet. An unreachable backend does not end the wait. Nor does a store that is
    unreachable or refuses access, while the job runs on this machine. See `collect` for what else does.
    """
    with services.backend.watch([record]) as watch:
        if waiting is not None:
            waiting(watch)
        wait = _Wait(
            record, services, deadline, watch, on_status_change, stop, verify, warn, on_reason
        )

        def passes(error: KineticError, reached: bool) -> bool:
            if isinstance(error, LOGIN):  # A wait does not begin without credentials.
                return reached or (wait.here and isinstance(error, StoreError))
            return isinstance(error, PASSING) and (wait.here or not isinstance(error, StoreError))

        outages = Outages(f"The wait for job {record.job_id} goes on.", passes, warn=warn)
        while True:
            view = patiently(
                partial(wait.look_and_wait, outages),
                outages,
                deadline=deadline,
                stopped=never if stop is None else stop.is_set,
                given_up=lambda error: _timed_out(record, wait.last, error.message),
            )
            if view is not None:
                return view


@dataclass
class _Wait:
    """A wait for one job: what was seen and reported so far."""

    record: JobRecord
    services: Services
    deadline: Deadline
    watch: Watch
    on_status_change: StatusCallback | None
    stop: threading.Event | None
    verify: Callable[[], None]
    warn: Callable[[str], None]
    on_reason: Callable[[str], object] | None = None
    last: JobStatus | None = None
    here: bool = False
    """Whether the job certainly runs on this machine: then its store may be unreachable."""
    warned: set[str] = field(default_factory=set)
    pending: PendingNotes | None = None
    explained: Observation | None = None
    explain_again: Deadline = field(default_factory=lambda: Deadline(0.0))
    lost: Deadline | None = None

    def look_and_wait(self, outages: Outages) -> View | None:
        """Return the view that contains the outcome; None after a wait for a change."""
        record, services, deadline = self.record, self.services, self.deadline
        try:  # Without a request to its store.
            self.here = services.backend.forward(record) is None
        except JobError:
            self.here = False
        if self.here:  # A brief limit, so that the deadline, a stop and the job's end are noticed.
            services = services.limited(OutageLimit(LOOK, quiet=inf))
        view = look(record, services, verify=self.verify)
        outages.reached = True  # A login may expire while the wait goes on.
        if view.status is not self.last:
            self.last = view.status
            if self.pending is not None and view.status is not JobStatus.PENDING:
                self.pending.over()
            if self.on_status_change is not None:
                try:
                    self.on_status_change(view.status)
                except Exception:
                    log.exception(
                        "on_status_change raised for %s; the result is collected all the same",
                        view.status,
                    )
        if view.outcome is not None:
            return view
        if view.seen is not None and view.seen.kept_in:
            store_kept(services, record.job_id, view.seen.kept_in)
            return None
        if view.status is JobStatus.NOT_FOUND or view.removed:
            raise not_found(record, view.status)
        if self.stop is not None and self.stop.is_set():
            raise WaitStopped
        self._report_trouble(view)
        self.lost = (self.lost or Deadline(_LOST)) if view.ending is Ending.LOST else None
        if self.lost is not None and (self.lost.passed or deadline.passed):
            raise _lost(record, view.reason)
        if deadline.passed:
            reason = view.reason
            with suppress(UnavailableError):
                reason = explained(record, view, services)
            raise _timed_out(record, view.status, reason)
        longest = _SILENT_WAIT if view.ending is Ending.SILENT else _LONGEST_WAIT
        with asking(record):
            wait = longest if self.lost is None else self.lost.at_most(longest)
            self.watch.wait(deadline.at_most(wait))
        return None

    def _report_trouble(self, view: View) -> None:
        """Warn once of each problem that keeps the job from ending.

        The backend explains the job's state if it has changed, or if the last explanation is old.
        """
        if view.forged is not None:
            self._warn_once(
                f"{view.forged.message} Job {self.record.job_id} runs on; the wait for it goes on."
            )
        if view.seen is None or (view.seen == self.explained and not self.explain_again.passed):
            return
        with asking(self.record):
            found = self.services.backend.explain(self.record, view.seen)
        self.explained, self.explain_again = view.seen, Deadline(_EXPLAINED_EVERY)
        if view.status is JobStatus.PENDING and found.text:
            limit = OutageLimit(LOOK, quiet=inf)
            self.pending = self.pending or PendingNotes(
                self.services.store.limited(limit), self.record.job_id
            )
            self.pending.saw(found.text)
            if self.on_reason is not None:
                self.on_reason(found.text)
        if found.trouble:
            self._warn_once(f"Job {self.record.job_id} is {view.status.value}: {found.text}")

    def _warn_once(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            self.warn(text)


_EXPLAINED_EVERY = 30.0
"""Seconds between two explanations of why a job waits: on a cluster they cost requests."""


_LONGEST_WAIT = 30.0
"""Seconds until the next look at a job, so that a lost wake-up does no harm."""
_SILENT_WAIT = 5.0
"""The same for a job whose end no watch shows."""


_LOST = 30.0
"""Seconds that a silent supervisor gets to come back: the network may have been down."""


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
        f"Job {record.job_id} {known}{because}. Stopped waiting.",
        hint=f"It is not cancelled. Come back with kinetic.attach({record.job_id!r}).result().",
        job_id=record.job_id,
    )
