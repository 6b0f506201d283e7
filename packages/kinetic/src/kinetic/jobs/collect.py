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
from functools import partial
from math import inf
from typing import IO, TYPE_CHECKING, Any, cast

from kinetic.errors import (
    IntegrityError,
    JobError,
    JobFailedError,
    JobNotFoundError,
    KineticError,
    ObjectNotFoundError,
    RecordError,
    ResultTimeoutError,
    StoreUnavailableError,
    UnavailableError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.outages import Outage, pauses
from kinetic.jobs.results import (
    annotated,
    failure_without_exception,
    remote_error,
    unreadable,
    why_unreadable,
)
from kinetic.jobs.services import LOOK, Services
from kinetic.jobs.status import View, asking, explained, log_lines, look, nothing_to_verify
from kinetic.quantities import parse_wait
from kinetic.waiting import Deadline, sleep
from kinetic_payload.calls.unpickle import load
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.records.host_outcome import HostOutcome, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.outages import OutageLimit, limited
from kinetic_payload.stores.store import Store

if TYPE_CHECKING:
    from kinetic.backends.backend import LogLine, Observation, Watch

log = logging.getLogger("kinetic")

StatusCallback = Callable[[JobStatus], None]
Keep = Callable[[IO[bytes]], object]
"""Reads a verified pickle, from its beginning."""


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
    verify: Callable[[], None] = nothing_to_verify,
    timeout: float | None = None,
    on_line: Callable[[LogLine], None] | None = None,
    on_status_change: StatusCallback | None = None,
    stop: threading.Event | None = None,
    waiting: Callable[[Watch], object] | None = None,
    track: TrackProgress = silent,
    warn: Callable[[str], None] = log.warning,
    keep: Keep | None = None,
) -> Collected:
    """Wait for the job's end, handing its log to *on_line*, and bring what it left.

    *keep* gets the pickle of a value before it is unpickled, whether that works or not.
    A log that breaks off costs no result; *warn* is told. *verify* is called before anything is unpickled:
    it makes sure that a record that was read from the store is signed with our key. A store that does not
    answer once the job has ended is waited for until the *timeout*.

    Raises:
        ResultTimeoutError: *timeout* seconds passed; the job runs on, or what it left is kept.
        JobNotFoundError: There is neither an outcome nor a resource.
        JobFailedError: What keeps the job was not heard of for too long; it may come back.
        IntegrityError: What lies in the store is not what the outcome vouches for.
        SignatureError: The record, or the outcome, may be of somebody who can only write to the bucket.
        ResultUnreadableError: The value is there and cannot be unpickled here.
    """
    deadline = Deadline(parse_wait(timeout))
    with _told_how_to_come_back(record):
        with LogPump(record, services, on_line, warn) if on_line else nullcontext():
            view = wait_for_outcome(
                record,
                services,
                deadline,
                on_status_change=on_status_change,
                stop=stop,
                verify=verify,
                warn=warn,
                waiting=waiting,
            )
        return _fetched(
            record,
            view,
            services,
            deadline,
            stop=stop,
            warn=warn,
            fetch=partial(collected, record.job_id, view, services, track=track, keep=keep),
        )


def _fetched(
    record: JobRecord,
    view: View,
    services: Services,
    deadline: Deadline,
    *,
    stop: threading.Event | None,
    warn: Callable[[str], None],
    fetch: Callable[[], Collected],
) -> Collected:
    """Return what *fetch* brings of a job that has ended, waiting for a store that does not answer."""
    between, told = pauses(), False
    while True:
        limit = OutageLimit(max(LOOK, deadline.at_most(inf)), report=warn)
        try:
            with limited(limit):
                return fetch()
        except StoreUnavailableError as error:
            # What the job left stays there: only who waits decides that it takes too long.
            if stop is not None and stop.is_set():
                raise WaitStopped from error
            if deadline.passed:
                raise _not_downloaded(record, view.status, error.message) from error
            if not told:
                warn(
                    f"{error.message} Job {record.job_id} has ended, and its result is kept there: "
                    "the wait for it goes on."
                )
            told = True
            sleep(deadline.at_most(between.next()))
        except ObjectNotFoundError as error:
            if services.store.stat(JobObjects(record.job_id).handle) is None:
                # Somebody cleaned up between our looking and our reading.
                raise _not_found(record, view.status) from None
            raise IntegrityError(
                f"Job {record.job_id} ended, and a part of what it left is missing: {error.message}",
                hint="Something other than Kinetic removed it. Run the job again.",
            ) from error


@contextmanager
def _told_how_to_come_back(record: JobRecord) -> Iterator[None]:
    """Add to an error that says nothing of the job that this goes on, or has left its result, without us."""
    try:
        yield
    except (JobError, IntegrityError, RecordError):
        raise
    except KineticError as error:
        error.add_note(
            f"The job is left alone. Come back with: kinetic.attach({record.job_id!r}).result()"
        )
        raise


class WaitStopped(Exception):  # noqa: N818 - nothing went wrong: the waiting was called off
    """Whoever waited does not want to know any more."""


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
    """Wait until the job has a durable outcome and return what was seen then.

    *waiting* gets what is waited on, so that who sets *stop* can wake us. *verify* is called at each look:
    nobody is to wait for hours for what will be refused. *warn* is told, once each, what keeps the job from
    its end, or pretends to be its outcome while it runs. A store that does not answer, or refuses, ends no
    wait for a job that lives on this machine; nor does a backend that is not reached.

    Raises:
        ResultTimeoutError: The deadline passed; the job runs on.
        JobNotFoundError: There is neither an outcome nor a resource.
        JobFailedError: What keeps the job was not heard of for too long; it may come back.
        StoreError: It has ended, and its result cannot be stored yet; it is kept where it ran.
        StoreUnavailableError: The store does not answer, and the job does not live on this machine.
        StorePermissionError, CredentialsError: It refuses, likewise.
        KineticError: The backend does not permit to look, or is another one than the job's.
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
    troubles = _Troubles(record, services, warn)
    lost: Deadline | None = None
    outage, between = Outage(record, services, warn), pauses()
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
            _tell(on_status_change, view.status)
        if view.outcome is not None:
            return view
        if view.unsaved and view.status.terminal:
            services.backend.store_result(record)
            continue
        if view.status is JobStatus.NOT_FOUND or view.forgotten:
            raise _not_found(record, view.status)
        if stop is not None and stop.is_set():
            raise WaitStopped
        with outage:
            troubles.tell(view)
        lost = (lost or Deadline(_LOST)) if view.lost else None
        if lost is not None and (lost.passed or deadline.passed):
            raise _lost(record, view.reason)
        if deadline.passed:
            raise _timed_out(record, view.status, _why(record, view, services))
        # Woken now and then all the same, so that a lost wake-up does no harm.
        longest = _LONGEST_WAIT if lost is None else lost.at_most(_LONGEST_WAIT)
        reached = False
        with outage, asking(record):
            watch.wait(deadline.at_most(longest))
            reached = True
        if reached:
            between.reset()
        else:  # The next look need not meet it.
            sleep(deadline.at_most(between.next()))


def _why(record: JobRecord, view: View, services: Services) -> str:
    """Return why the job has not ended; that its backend is not reached any more is no other end."""
    try:
        return explained(record, view, services)
    except UnavailableError:
        return view.reason


_LONGEST_WAIT = 30.0
_LOST = 30.0
"""Seconds that what was not heard of gets to be heard of: the network may have been away."""


class _Troubles:
    """Tells the user once, while a job is waited for, each thing that keeps it from its end."""

    def __init__(self, record: JobRecord, services: Services, warn: Callable[[str], None]) -> None:
        self._record = record
        self._services = services
        self._warn = warn
        self._told: set[str] = set()
        self._seen: Observation | None = None
        self._again = Deadline(0.0)

    def tell(self, view: View) -> None:
        """Ask why the job is as it is, if that changed or was not asked for a while."""
        if view.forged is not None:
            self._say(
                f"{view.forged.message} Job {self._record.job_id} runs on, and is waited for."
            )
        if view.seen is None or (view.seen == self._seen and not self._again.passed):
            return
        with asking(self._record):
            found = self._services.backend.explain(self._record, view.seen)
        self._seen, self._again = view.seen, Deadline(_EXPLAINED_EVERY)
        if found.trouble:
            self._say(f"Job {self._record.job_id} is {view.status.value}: {found.text}")

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)


_EXPLAINED_EVERY = 30.0
"""Seconds after which it is asked again why a job waits: on a cluster that costs requests."""


def _tell(callback: StatusCallback | None, status: JobStatus) -> None:
    if callback is None:
        return
    try:
        callback(status)
    except Exception:
        log.exception(
            "on_status_change raised for %s; the result is collected all the same", status
        )


def collected(
    job_id: str,
    view: View,
    services: Services,
    *,
    track: TrackProgress = silent,
    keep: Keep | None = None,
) -> Collected:
    """Bring the value, or the very exception, of a job that ended as *view*, which was verified, says.

    *keep* gets the pickle of a value.
    """
    outcome, store = view.outcome, services.store
    assert outcome is not None
    if outcome.status == "cancelled":
        return Collected(error=failure_without_exception(outcome, None))
    host = _verified_report(job_id, outcome, store)
    if outcome.status == "succeeded":
        if host is None or host.value is None:
            raise IntegrityError(f"The outcome of {job_id} says success and names no value.")
        value = _unpickled_value(job_id, host, host.value, store, track, keep)
        return Collected(value=value)
    if host is None or host.error is None or host.reason != "exception" or host.phase != "call":
        return Collected(error=failure_without_exception(outcome, host))
    return Collected(error=_users_exception(outcome, host, store, track))


def _verified_report(job_id: str, outcome: Outcome, store: Store) -> HostOutcome | None:
    """Return the report that decides, if the outcome vouches for it by its digest."""
    if outcome.attempt is None or outcome.host is None or outcome.digest is None:
        return None
    from kinetic_payload.records.decode import decode

    name = JobObjects(job_id).host_outcome(outcome.attempt, outcome.host)
    try:
        data = read_record(store, name)
    except ObjectNotFoundError:
        if outcome.status == "succeeded":
            raise
        return None
    if hashlib.sha256(data).hexdigest() != outcome.digest:
        raise IntegrityError(
            f"{name} is not what the outcome of {job_id} vouches for.",
            hint="Somebody changed it after the job ended; nothing of it was unpickled.",
        )
    return decode(HostOutcome, data, name=name)


@contextmanager
def _verified(pickled: Pickled, store: Store, track: TrackProgress) -> Iterator[IO[bytes]]:
    """Open a pickle whose bytes were compared with their digest. All of a large one is never in memory.

    What is verified is what is read: a stream that cannot go back is copied first.
    """
    with ExitStack() as stack:
        if pickled.name is None:
            stream: IO[bytes] = io.BytesIO(base64.b64decode(pickled.inline or ""))
        elif pickled.size > _AT_ONCE and store.concurrency > 1:
            stream = stack.enter_context(_downloaded(pickled.name, pickled.size, store, track))
        elif store.concurrency > 1:
            # One byte more, so that a larger object does not match.
            stream = io.BytesIO(store.read(pickled.name, end=pickled.size + 1))
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


_AT_ONCE = 8 * 1024 * 1024
"""Bytes that are not worth showing on their way."""


@contextmanager
def _downloaded(name: str, size: int, store: Store, track: TrackProgress) -> Iterator[IO[bytes]]:
    """Bring the object *name* over a network, to a file that goes with the block."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="kinetic-") as folder:
        path = Path(folder) / "value"
        with track("downloading the value", size) as advance:
            store.download(name, path, progress=advance, most=size)
        with path.open("rb") as stream:
            yield stream


def _copied(stream: IO[bytes]) -> IO[bytes]:
    import shutil
    import tempfile

    copy = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked closes it
    shutil.copyfileobj(stream, copy, 1 << 20)
    copy.seek(0)
    return copy


def _unpickled_value(
    job_id: str,
    host: HostOutcome,
    pickled: Pickled,
    store: Store,
    track: TrackProgress,
    keep: Keep | None,
) -> Any:
    with _verified(pickled, store, track) as stream:
        if keep is not None:
            keep(stream)
            stream.seek(0)
        try:
            return load(stream, host.python)
        except Exception as error:
            raise unreadable(job_id, host, error) from error


def _users_exception(
    outcome: Outcome, host: HostOutcome, store: Store, track: TrackProgress
) -> BaseException:
    info = host.error
    assert info is not None
    if info.pickled is None:
        return remote_error(outcome, host, info.unpicklable or "it does not pickle.")
    with _verified(info.pickled, store, track) as stream:
        try:
            error = load(stream, host.python)
        except Exception as problem:  # noqa: BLE001 - unpickling runs code of anybody
            return remote_error(outcome, host, why_unreadable(host, problem))
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


def _lost(record: JobRecord, reason: str) -> JobFailedError:
    error = JobFailedError(
        f"Job {record.job_id} failed, as far as can be told from here: {reason}",
        hint="If it comes back, so does its result: call result() again. To give the job up: "
        f"kinetic jobs cancel {record.job_id}",
    )
    error.job_id = record.job_id
    return error


def _timed_out(record: JobRecord, status: JobStatus | None, reason: str) -> ResultTimeoutError:
    because = f" ({reason})" if reason else ""
    known = f"is still {status.value}" if status is not None else "was not seen to end"
    error = ResultTimeoutError(
        f"Job {record.job_id} {known}{because}; the wait was given up.",
        hint=f"It runs on. Come back with kinetic.attach({record.job_id!r}).result().",
    )
    error.job_id = record.job_id
    return error


def _not_downloaded(record: JobRecord, status: JobStatus, reason: str) -> ResultTimeoutError:
    error = ResultTimeoutError(
        f"Job {record.job_id} has {status.value}, and its result could not be downloaded: {reason} "
        "The wait was given up.",
        hint="The result is kept. Come back with: "
        f"kinetic.attach({record.job_id!r}).result(), or kinetic jobs result {record.job_id}",
    )
    error.job_id = record.job_id
    return error


_LOG_TAIL = 10.0
"""Seconds that the next line of the log may take once the outcome is there."""


class LogPump:
    """Hands a running job's log lines on, from a thread of its own, until the job or we end."""

    def __init__(
        self,
        record: JobRecord,
        services: Services,
        emit: Callable[[LogLine], None],
        warn: Callable[[str], None] = log.warning,
        *,
        patience: float = _LOG_TAIL,
    ) -> None:
        self._job_id = record.job_id
        self._warn = warn
        self._patience = patience
        self._handed_on = 0
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
        if not ends(self._thread, lambda: self._handed_on, patience=self._patience):
            self._warn(
                f"The rest of the log is not waited for any longer: kinetic jobs logs {self._job_id}"
            )
        self._stopped.set()

    def _run(self, record: JobRecord, services: Services, emit: Callable[[LogLine], None]) -> None:
        try:
            for line in log_lines(record, services, follow=True):
                if self._stopped.is_set():
                    return
                emit(line)
                self._handed_on += 1
        except Exception as error:  # noqa: BLE001 - a lost live log must not cost the result
            self._warn(f"The live log of {record.job_id} broke off: {error}")


def ends(thread: threading.Thread, done: Callable[[], int], *, patience: float) -> bool:
    """Wait for *thread* for as long as it gets something done in *patience* seconds."""
    before = None
    while thread.is_alive() and before != (before := done()):
        thread.join(patience)
    return not thread.is_alive()
