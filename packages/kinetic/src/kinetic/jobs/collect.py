"""Collect the result of a job: wait for its end, then fetch its value or its exception."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

from kinetic.backends.backend import never
from kinetic.errors import JobError, ResultTimeoutError
from kinetic.jobs.fetch import Collected, Keep, fetch
from kinetic.jobs.logs import LiveLog
from kinetic.jobs.outages import Outages, patiently
from kinetic.jobs.services import LOOK, Services
from kinetic.jobs.status import nothing_to_verify
from kinetic.jobs.wait import StatusCallback, not_found, wait_for_outcome
from kinetic.quantities import parse_wait
from kinetic.waiting import Deadline, in_thread
from kinetic_payload.errors import (
    IntegrityError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    StoreUnavailableError,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores.outages import OutageLimit

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine, Watch
    from kinetic.jobs.handle import JobHandle

log = logging.getLogger("kinetic")


def collect(
    record: JobRecord,
    services: Services,
    *,
    verify: Callable[[], None] = nothing_to_verify,
    timeout: float | None = None,
    on_line: Callable[[LogLine], None] | None = None,
    on_status_change: StatusCallback | None = None,
    stop: threading.Event | None = None,
    waiting: Callable[[Watch], object] | None = None,
    track: TrackProgress = silent,
    warn: Callable[[str], None] = log.warning,
    keep: Keep | None = None,
    on_reason: Callable[[str], object] | None = None,
) -> Collected:
    """Wait for the job's end, passing its log to *on_line*; return its value or exception.

    *keep* is called with the pickle of a value before it is unpickled. If the log breaks off, *warn* is
    called, and the result is still collected. *on_reason* gets the reasons why it does not run yet. *verify* is called before anything is unpickled: it makes
    sure that a record from the store is signed with our key. Once the job has ended, an unavailable store
    is retried until the *timeout*.

    Raises:
        ResultTimeoutError: *timeout* seconds passed; the job continues, or its result is kept.
        JobNotFoundError: There is neither an outcome nor a resource.
        JobFailedError: The job's supervisor has been silent for too long; it may come back.
        IntegrityError: An object in the store does not match its digest in the outcome.
        SignatureError: The record or the outcome is not signed with our key.
        ResultUnreadableError: The value is in the store, but cannot be unpickled here.
    """
    deadline = Deadline(parse_wait(timeout))
    with _hint_to_come_back(record):
        with LiveLog(record, services, on_line, warn) if on_line else nullcontext():
            view = wait_for_outcome(
                record,
                services,
                deadline,
                on_status_change=on_status_change,
                stop=stop,
                verify=verify,
                warn=warn,
                waiting=waiting,
                on_reason=on_reason,
            )

        def fetch_once() -> Collected:
            limit = OutageLimit(max(LOOK, deadline.at_most(inf)), report=warn)
            try:
                brief = services.limited(limit)
                return fetch(record.job_id, view, brief, track=track, keep=keep)
            except ObjectNotFoundError as error:
                if services.store.stat(JobObjects(record.job_id).handle) is None:
                    # Another process cleaned it up between the look and the download.
                    raise not_found(record, view.status) from None
                raise IntegrityError(
                    f"Job {record.job_id} ended, and a part of its result is missing: {error.message}",
                    hint="It was not removed by Kinetic. Run the job again.",
                ) from error

        # The result stays in the store: only the timeout ends the wait.
        return patiently(
            fetch_once,
            Outages(
                f"Job {record.job_id} has ended, and its result is kept there: the wait for it goes on.",
                lambda error, _: isinstance(error, StoreUnavailableError),
                warn=warn,
            ),
            deadline=deadline,
            stopped=never if stop is None else stop.is_set,
            given_up=lambda error: ResultTimeoutError(
                f"Job {record.job_id} has {view.status.value}, and its result could not be downloaded: "
                f"{error.message} Stopped waiting.",
                hint="The result is kept. Come back with: "
                f"kinetic.attach({record.job_id!r}).result(), or kinetic jobs result {record.job_id}",
                job_id=record.job_id,
            ),
        )


@contextmanager
def _hint_to_come_back(record: JobRecord) -> Iterator[None]:
    """Add a note on how to come back to the job to errors that do not mention it."""
    try:
        yield
    except (JobError, IntegrityError, RecordError):
        raise
    except KineticError as error:
        error.add_note(
            f"The job is left alone. Come back with: kinetic.attach({record.job_id!r}).result()"
        )
        raise


async def result_of(handle: JobHandle) -> Any:
    """Return `handle.result()`, called in a daemon thread.

    If the awaiting task is cancelled, the wait ends; the job continues.
    """
    stop = threading.Event()
    watches: list[Watch] = []
    try:
        return await in_thread(
            lambda: handle._collect(stop=stop, waiting=watches.append),
            f"kinetic-await-{handle.job_id}",
        )
    finally:
        stop.set()
        for watch in watches:
            watch.wake()
