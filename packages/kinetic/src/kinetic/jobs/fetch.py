"""Fetch the value or the exception of a job that has ended: verify it, then unpickle it, or explain why not."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, TypeVar, cast

from kinetic.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    JobKilledError,
    NoValueError,
    OutOfMemoryError,
    PreparationError,
    RemoteError,
    ResultUnreadableError,
    TimeLimitError,
)
from kinetic.jobs.services import Services
from kinetic.jobs.status import View
from kinetic_payload.calls.unpickle import difference, load, minor
from kinetic_payload.errors import IntegrityError, KineticError, ObjectNotFoundError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.records.decode import decode
from kinetic_payload.records.host_outcome import HostOutcome, Pickled
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.store import Store

Keep = Callable[[IO[bytes]], object]
"""Reads a verified pickle, from its beginning."""


@frozen()
class Collected:
    """The value or the exception of a job; `get` can be called again and again."""

    value: Any = None
    error: BaseException | None = None
    traceback: str = ""
    """The traceback of the function's exception, as the job's log shows it."""

    @property
    def succeeded(self) -> bool:
        """Whether there is a value."""
        return self.error is None

    def get(self) -> Any:
        """Return the value, or raise the exception."""
        if self.error is not None:
            # With the old traceback, each call would add its frames to those of the previous calls.
            raise self.error.with_traceback(None)
        return self.value


def fetch(
    job_id: str,
    view: View,
    services: Services,
    *,
    track: TrackProgress = silent,
    keep: Keep | None = None,
) -> Collected:
    """Return the value or the original exception of a job that has ended, as the verified *view* shows.

    *keep* is called with the pickle of a value.
    """
    outcome, store = view.outcome, services.store
    assert outcome is not None
    if outcome.status == "cancelled":
        return Collected(error=failure_without_exception(outcome, None))
    host = _verified_report(job_id, outcome, store)
    if outcome.status == "succeeded":
        if host is None or host.value is None:
            raise IntegrityError(f"The outcome of {job_id} is a success, but names no value.")
        with _open_verified(host.value, store, track) as stream:
            if keep is not None:
                keep(stream)
                stream.seek(0)
            try:
                return Collected(value=load(stream, host.python))
            except Exception as error:
                raise unreadable(job_id, host, error) from error
    if host is None or host.error is None or host.reason != "exception" or host.phase != "call":
        return Collected(error=failure_without_exception(outcome, host))
    users = _users_exception(outcome, host, store, track)
    return Collected(error=users, traceback=host.error.traceback)


def _verified_report(job_id: str, outcome: Outcome, store: Store) -> HostOutcome | None:
    """Return the report that decided *outcome*, checked against its digest there; None if there is none."""
    if outcome.report is not None:  # The signature of the outcome covers it.
        return outcome.report
    if outcome.attempt is None or outcome.host is None or outcome.digest is None:
        return None
    name = JobObjects(job_id).host_outcome(outcome.attempt, outcome.host)
    try:
        data = read_record(store, name)
    except ObjectNotFoundError:
        if outcome.status == "succeeded":
            raise
        return None
    if hashlib.sha256(data).hexdigest() != outcome.digest:
        raise IntegrityError(
            f"{name} does not match its digest in the outcome of {job_id}.",
            hint="It was changed after the job ended; nothing of it was unpickled.",
        )
    return decode(HostOutcome, data, name=name)


@contextmanager
def _open_verified(pickled: Pickled, store: Store, track: TrackProgress) -> Iterator[IO[bytes]]:
    """Open a pickle whose bytes match its digest; a large one is never read into memory as a whole.

    The verified bytes are those that are read.
    """
    with ExitStack() as stack:
        if pickled.name is None:
            stream: IO[bytes] = io.BytesIO(base64.b64decode(pickled.inline or ""))
        elif pickled.size > _SMALL and store.concurrency > 1:
            stream = stack.enter_context(_downloaded(pickled.name, pickled.size, store, track))
        elif store.concurrency > 1:
            # One byte more, so that a larger object does not match.
            stream = io.BytesIO(store.read(pickled.name, end=pickled.size + 1))
        else:
            stream = stack.enter_context(store.reader(pickled.name))
        if hashlib.file_digest(cast("Any", stream), "sha256").hexdigest() != pickled.digest:
            raise IntegrityError(
                f"{pickled.name or 'A value inside an outcome'} does not match its digest.",
                hint="It was damaged or changed after the job ended; nothing of it was unpickled.",
            )
        stream.seek(0)
        yield stream


_SMALL = 8 * 1024 * 1024
"""Largest pickle, in bytes, that is downloaded in one request and without showing progress."""


@contextmanager
def _downloaded(name: str, size: int, store: Store, track: TrackProgress) -> Iterator[IO[bytes]]:
    """Download the object *name* to a file that is removed at the end of the block."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="kinetic-") as folder:
        path = Path(folder) / "value"
        with track("downloading the value", size) as advance:
            store.download(name, path, progress=advance, most=size)
        with path.open("rb") as stream:
            yield stream


def _users_exception(
    outcome: Outcome, host: HostOutcome, store: Store, track: TrackProgress
) -> BaseException:
    info = host.error
    assert info is not None
    if info.pickled is None:
        return remote_error(outcome, host, info.unpicklable or "it does not pickle.")
    with _open_verified(info.pickled, store, track) as stream:
        try:
            error = load(stream, host.python)
        except Exception as problem:  # noqa: BLE001 - unpickling runs any code
            return remote_error(outcome, host, why_unreadable(host, problem))
    if not isinstance(error, Exception | BaseExceptionGroup):
        # A KeyboardInterrupt of the job must not look like one of this process.
        return remote_error(outcome, host, f"a {type(error).__name__} is not raised here.")
    return annotated(error, outcome, host)


E = TypeVar("E", bound=BaseException)


def failure_without_exception(outcome: Outcome, host: HostOutcome | None) -> JobError:
    """Return the error for a job that ended without a value and without the user's exception."""
    if outcome.status == "cancelled":
        return JobCancelledError(
            f"Job {outcome.job_id} was cancelled.",
            hint=f"Its log is kept: kinetic jobs logs {outcome.job_id}",
            job_id=outcome.job_id,
        )
    reason = outcome.message or (host.message if host else "") or "No reason was reported."
    attempt = f" in attempt {outcome.attempt}" if (outcome.attempt or 1) > 1 else ""
    kind: type[JobFailedError] = JobFailedError
    own: dict[str, Any] = {}
    if outcome.cause == "out-of-memory" or (host is not None and host.out_of_memory):
        kind = OutOfMemoryError
    elif host is None:
        pass
    elif host.reason == "timeout":
        kind = TimeLimitError
    elif host.reason == "killed":
        kind, own = JobKilledError, {"signal": host.signal}
    elif host.reason in ("exception", "exited") and host.phase in ("call", "report"):
        kind, own = NoValueError, {"exit_code": host.exited_with}
    elif host.reason in ("exception", "exited"):
        kind, own = PreparationError, {"phase": host.phase}
    error = kind(
        f"Job {outcome.job_id} failed{attempt}: {reason}",
        hint=f"Its log: kinetic jobs logs {outcome.job_id}",
        job_id=outcome.job_id,
    )
    for name, value in own.items():
        setattr(error, name, value)
    for note in notes_of(outcome, host):
        error.add_note(note)
    return error


def remote_error(outcome: Outcome, host: HostOutcome, why: str) -> RemoteError:
    """Return an error in place of the user's exception, which cannot be rebuilt here because of *why*."""
    info = host.error
    assert info is not None
    headline = f"{info.type}: {info.message}" if info.message else info.type
    error = RemoteError(
        headline,
        hint=f"The exception itself could not be rebuilt here: {why}",
        job_id=outcome.job_id,
    )
    error.remote_type = info.type
    error.remote_message = info.message
    error.remote_traceback = info.traceback
    return annotated(error, outcome, host)


def unreadable(job_id: str, host: HostOutcome, problem: Exception) -> ResultUnreadableError:
    """Return the error for a value that *host* reported, but that *problem* prevents from being unpickled."""
    todo = "Install what it needs here, then call result() again."
    if difference(host.python) is not None:
        todo = f"Call result() from Python {minor(host.python)}."
    return ResultUnreadableError(
        f"Job {job_id} succeeded, but its value cannot be unpickled here: "
        f"{why_unreadable(host, problem)}",
        hint=f"The value is kept. {todo}",
    )


def why_unreadable(host: HostOutcome, problem: Exception) -> str:
    """Return why the result of *host* cannot be unpickled here, with both Python versions if they differ."""
    versions = difference(host.python)
    text = f"{type(problem).__name__}: {problem}".rstrip(".") + "."
    if isinstance(problem, KineticError):
        text = problem.message
    return text if versions is None else f"it was {versions}. {text}"


def annotated(error: E, outcome: Outcome, host: HostOutcome) -> E:
    """Add the place where *error* happened and its remote traceback as notes, once, and the id of its job.

    An attribute `job_id` of the user's own stays.
    """
    add_notes(error, notes_of(outcome, host))
    with suppress(Exception):  # Code of the user's class may run.
        if not hasattr(error, "job_id"):
            object.__setattr__(error, "job_id", outcome.job_id)
    return error


def add_notes(
    error: BaseException, notes: Sequence[str], change: Callable[[str], str] = str
) -> None:
    """Add *notes* to those of *error*, each once, and *change* all; the user's class may be frozen, or have others."""
    before = vars(error).get("__notes__")
    known = [each for each in before if isinstance(each, str)] if isinstance(before, list) else []
    new = [change(each) for each in dict.fromkeys([*known, *notes])]
    if new:
        object.__setattr__(error, "__notes__", new)


def notes_of(outcome: Outcome, host: HostOutcome | None) -> list[str]:
    """Return notes on where an exception happened: remote traceback, phase, attempt, host."""
    if host is None:
        return []
    notes = []
    # That of sys.exit says no more than its text.
    if host.error is not None and host.error.traceback and host.error.type != "SystemExit":
        notes.append("Remote traceback:\n" + host.error.traceback.rstrip())
    notes.append(
        f"In phase {host.phase!r} of attempt {host.attempt} on host {host.host} "
        f"of job {outcome.job_id}."
    )
    if outcome.other_failed_hosts:
        others = ", ".join(str(number) for number in outcome.other_failed_hosts)
        plural = "s" if len(outcome.other_failed_hosts) > 1 else ""
        notes.append(f"Also failed: host{plural} {others}.")
    notes.extend(host.warnings)
    return notes
