"""Watch a job to its end, verify what it left, and bring the value or the exception."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from kinetic.errors import (
    IntegrityError,
    JobNotFoundError,
    ObjectNotFoundError,
    ResultTimeoutError,
    ResultUnreadableError,
)
from kinetic.job_status import JobStatus
from kinetic.observing import log_lines, look
from kinetic.outcomes import annotated, failure_without_exception, remote_error, status_of
from kinetic.quantities import parse_wait
from kinetic.services import Services
from kinetic.waiting import Deadline
from kinetic_payload.layout import JobObjects
from kinetic_payload.records import HostOutcome, JobRecord, Outcome, Pickled
from kinetic_payload.store import Store

if TYPE_CHECKING:
    from kinetic.backends import LogLine

log = logging.getLogger("kinetic")

StatusCallback = Callable[[JobStatus], None]


@dataclass(frozen=True)
class Collected:
    """How a job ended, as it is given to its user: again and again the same."""

    value: Any = None
    error: BaseException | None = None

    @property
    def succeeded(self) -> bool:
        """Whether there is a value."""
        return self.error is None

    def get(self) -> Any:
        """Return the value, or raise the exception."""
        if self.error is not None:
            # Without this each call would add its frames to the traceback of the one before.
            raise self.error.with_traceback(None)
        return self.value


def collect(
    record: JobRecord,
    services: Services,
    *,
    timeout: float | None = None,
    on_line: Callable[[LogLine], None] | None = None,
    on_status_change: StatusCallback | None = None,
    stop: threading.Event | None = None,
) -> Collected:
    """Wait for the job's end, handing its log to *on_line*, and bring what it left.

    Raises:
        ResultTimeoutError: *timeout* seconds passed; the job runs on.
        JobNotFoundError: There is neither an outcome nor a resource.
        IntegrityError: What lies in the store is not what the outcome vouches for.
        ResultUnreadableError: The value is there and cannot be unpickled here.
    """
    deadline = Deadline(parse_wait(timeout))
    with LogPump(record, services, on_line) if on_line else nullcontext():
        outcome = wait_for_outcome(
            record, services, deadline, on_status_change=on_status_change, stop=stop
        )
    try:
        return collected(record.job_id, outcome, services.store)
    except ObjectNotFoundError as error:
        if services.store.stat(JobObjects(record.job_id).handle) is None:
            # Somebody cleaned up between our looking and our reading.
            raise _not_found(record, status_of(outcome)) from None
        raise IntegrityError(
            f"Job {record.job_id} ended, and a part of what it left is missing: {error.message}",
            hint="Something other than Kinetic removed it. Run the job again.",
        ) from error


class WaitStopped(Exception):  # noqa: N818 - nothing went wrong: the waiting was called off
    """Whoever waited does not want to know any more."""


def wait_for_outcome(
    record: JobRecord,
    services: Services,
    deadline: Deadline,
    *,
    on_status_change: StatusCallback | None = None,
    stop: threading.Event | None = None,
) -> Outcome:
    """Wait until the job has a durable outcome and return it.

    Raises:
        ResultTimeoutError: The deadline passed; the job runs on.
        JobNotFoundError: There is neither an outcome nor a resource.
    """
    last: JobStatus | None = None
    while True:
        view = look(record, services)
        if view.status is not last:
            last = view.status
            _tell(on_status_change, view.status)
        if view.outcome is not None:
            return view.outcome
        if view.status is JobStatus.NOT_FOUND or view.forgotten:
            raise _not_found(record, view.status)
        if stop is not None and stop.is_set():
            raise WaitStopped
        if deadline.passed:
            raise _timed_out(record, view.status, view.reason)
        # Woken now and then all the same, so that a stop is heard and a lost wake-up does no harm.
        services.backend.wait(record, deadline.at_most(_LONGEST_WAIT if stop is None else 0.25))


_LONGEST_WAIT = 30.0


def _tell(callback: StatusCallback | None, status: JobStatus) -> None:
    if callback is None:
        return
    try:
        callback(status)
    except Exception:
        log.exception(
            "on_status_change raised for %s; the result is collected all the same", status
        )


def collected(job_id: str, outcome: Outcome, store: Store) -> Collected:
    """Bring the value, or the very exception, of a job that ended with *outcome*."""
    host = _verified_report(job_id, outcome, store)
    if outcome.status == "succeeded":
        if host is None or host.value is None:
            raise IntegrityError(f"The outcome of {job_id} says success and names no value.")
        return Collected(value=_unpickled_value(job_id, host.value, store))
    if host is None or host.error is None or host.reason != "exception" or host.phase != "call":
        return Collected(error=failure_without_exception(outcome, host))
    return Collected(error=_users_exception(outcome, host, store))


def _verified_report(job_id: str, outcome: Outcome, store: Store) -> HostOutcome | None:
    if outcome.attempt is None or outcome.host is None:
        return None
    from kinetic_payload.decoding import decode

    name = JobObjects(job_id).host_outcome(outcome.attempt, outcome.host)
    try:
        data = store.read(name)
    except ObjectNotFoundError:
        if outcome.status == "succeeded":
            raise
        return None
    if outcome.digest is not None and hashlib.sha256(data).hexdigest() != outcome.digest:
        raise IntegrityError(
            f"{name} is not what the outcome of {job_id} vouches for.",
            hint="Somebody changed it after the job ended; nothing of it was unpickled.",
        )
    return decode(HostOutcome, data, name=name)


@contextmanager
def _verified(pickled: Pickled, store: Store) -> Iterator[IO[bytes]]:
    """Open a pickle whose bytes were compared with their digest. All of a large one is never in memory.

    It is read twice, so it is copied first unless the store's own stream can go back.
    """
    with ExitStack() as stack:
        if pickled.name is None:
            stream: IO[bytes] = io.BytesIO(base64.b64decode(pickled.inline or ""))
        else:
            stream = stack.enter_context(store.reader(pickled.name))
            if not stream.seekable():
                stream = stack.enter_context(_copied(stream))
        if hashlib.file_digest(cast("Any", stream), "sha256").hexdigest() != pickled.digest:
            raise IntegrityError(
                f"{pickled.name or 'A value inside an outcome'} does not match its digest.",
                hint="It was damaged or changed after the job ended; nothing of it was unpickled.",
            )
        stream.seek(0)
        yield stream


def _copied(stream: IO[bytes]) -> IO[bytes]:
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    shutil.copyfileobj(stream, copy, 1 << 20)
    copy.seek(0)
    return copy


def _unpickled_value(job_id: str, pickled: Pickled, store: Store) -> Any:
    import pickle

    with _verified(pickled, store) as stream:
        try:
            return pickle.load(stream)
        except Exception as error:
            raise ResultUnreadableError(
                f"Job {job_id} succeeded, but its value cannot be unpickled here: "
                f"{type(error).__name__}: {error}.",
                hint="The value is kept. Install what it needs here, then call result() again.",
            ) from error


def _users_exception(outcome: Outcome, host: HostOutcome, store: Store) -> BaseException:
    import pickle

    info = host.error
    assert info is not None
    if info.pickled is None:
        return remote_error(outcome, host, info.unpicklable or "it does not pickle.")
    with _verified(info.pickled, store) as stream:
        try:
            error = pickle.load(stream)
        except Exception as problem:  # noqa: BLE001 - unpickling runs code of anybody
            return remote_error(outcome, host, f"{type(problem).__name__}: {problem}")
    if not isinstance(error, Exception | BaseExceptionGroup):
        # A KeyboardInterrupt of the job's must not look like one of whoever collects it.
        return remote_error(outcome, host, f"a {type(error).__name__} is not raised here.")
    return annotated(error, outcome, host)


def _not_found(record: JobRecord, status: JobStatus) -> JobNotFoundError:
    if status is JobStatus.NOT_FOUND:
        error = JobNotFoundError(
            f"Job {record.job_id} has neither an outcome nor anything that runs.",
            hint="It was cleaned up, or never started.",
        )
    else:
        error = JobNotFoundError(
            f"Job {record.job_id} is {status.value}, and its artifacts were removed from the store: "
            "there is nothing to collect any more.",
            hint="It was cleaned up; run it again.",
        )
    error.job_id = record.job_id
    return error


def _timed_out(record: JobRecord, status: JobStatus, reason: str) -> ResultTimeoutError:
    because = f" ({reason})" if reason else ""
    error = ResultTimeoutError(
        f"Job {record.job_id} is still {status.value}{because}; the wait was given up.",
        hint=f"It runs on. Come back with kinetic.attach({record.job_id!r}).result().",
    )
    error.job_id = record.job_id
    return error


class LogPump:
    """Hands a running job's log lines on, from a thread of its own, until the job or we end."""

    def __init__(
        self, record: JobRecord, services: Services, emit: Callable[[LogLine], None]
    ) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(record, services, emit), daemon=True, name="kinetic-log"
        )

    def __enter__(self) -> LogPump:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._stopped.set()
            return
        # The job has ended, so the follow ends by itself, after the last line.
        self._thread.join(_LOG_TAIL)
        self._stopped.set()

    def _run(self, record: JobRecord, services: Services, emit: Callable[[LogLine], None]) -> None:
        try:
            for line in log_lines(record, services, follow=True):
                if self._stopped.is_set():
                    return
                emit(line)
        except Exception as error:  # noqa: BLE001 - a lost live log must not cost the result
            log.warning("The live log of %s broke off: %s", record.job_id, error)


_LOG_TAIL = 10.0
"""Seconds that the rest of the log may take once the outcome is there."""
