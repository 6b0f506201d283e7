"""`JobHandle`: a submitted job, usable from any process on any machine."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal

if TYPE_CHECKING:
    import subprocess

    from typing_extensions import TypeVar

    from kinetic.backends.backend import LogLine, Watch
    from kinetic.job_status import JobStatus
    from kinetic.jobs.debugging import DebugSession
    from kinetic.jobs.fetch import Collected, Keep
    from kinetic.jobs.missing_files import Project
    from kinetic.jobs.outcome import JobOutcome
    from kinetic.jobs.services import Services
    from kinetic.settings.settings import Settings
    from kinetic_payload.errors import KineticError
    from kinetic_payload.progress import TrackProgress
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.records.outcome import Outcome
    from kinetic_payload.records.usage import Usage
    from kinetic_payload.stores.outages import OutageLimit

    # A handle of an unknown function, which is plain `JobHandle`, has a value of any type.
    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

log = logging.getLogger("kinetic")


@dataclass
class Session:
    """The state of a handle in this process, besides its fields: services, record, result."""

    settings: Settings | None = None
    """None means that they are resolved from the environment when they are needed."""
    services: Services | None = None
    record: JobRecord | None = None
    stored: bytes | None = None
    """The bytes that the record was read from; None for a record that was not read from a store."""
    verified: bool = False
    """Whether `stored` is signed with our key."""
    listed: JobStatus | KineticError | Literal["no outcome"] | None = None
    """The outcome as a listing of the store showed it, until it is used; None if no listing showed it."""
    final: Outcome | None = None
    """The outcome, as of the last look at it."""
    collected: Collected | None = None
    """Kept so that a further call returns the same result, even after a clean-up."""
    cleaned_up: bool = False
    project: Project | None = None
    """The project that was shipped, if this process submitted the job."""
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class JobHandle(Generic[T_co]):
    """Durable description of a submitted job, with methods to watch, collect and stop it.

    It is built from its fields alone; methods connect to the store and the backend when they first need
    them. A handle can be awaited: `await handle` is `handle.result()` without blocking the event loop.
    For jobs of the local backend `project` is `"local"`, and `bucket_name` is the location of the store:
    a folder, or `gs://…`.
    """

    job_id: str
    backend: str
    project: str
    cluster_name: str
    zone: str
    namespace: str
    bucket_name: str
    k8s_name: str
    image_uri: str
    accelerator: str
    func_name: str
    display_name: str
    created_at: str
    group_id: str | None = None
    group_kind: str | None = None
    group_index: int | None = None
    debug: bool = False

    _quiet = False
    """Whether waits show no progress."""

    @classmethod
    def from_job_context(
        cls, ctx: Any, backend_name: str, namespace: str, k8s_name: str
    ) -> JobHandle:
        """Build a handle from an object with the other fields as attributes, such as a job's record."""
        given = {"backend": backend_name, "namespace": namespace, "k8s_name": k8s_name}
        known = {f.name: getattr(ctx, f.name) for f in fields(cls) if f.name not in given}
        return cls(**{**known, **given})

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> JobHandle:
        """Rebuild a handle from a plain dict; unknown keys are ignored.

        Raises:
            RecordError: A field is missing or has the wrong type.
        """
        from kinetic_payload.records.decode import checked

        return checked(cls, d)

    def __hash__(self) -> int:
        """Hash the id, for `asyncio.gather(*handles)` and dicts by job."""
        return hash(self.job_id)

    def __repr__(self) -> str:
        """Return one line; this makes no request."""
        from kinetic_payload.printable import printable_line

        what = f"{self.func_name} on {self.accelerator} ({self.backend})"
        return printable_line(f"<{type(self).__name__} {self.job_id}: {what}>")

    def _repr_html_(self) -> str:
        """Return a table of one row, for notebooks; this makes no request."""
        import html

        cells = {
            "job": f"<code>{html.escape(self.job_id)}</code>",
            "function": html.escape(self.func_name),
            "accelerator": html.escape(self.accelerator),
            "backend": html.escape(self.backend),
            "submitted": html.escape(self.created_at),
        }
        rows = (
            "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
            for tag, row in (("th", cells), ("td", cells.values()))
        )
        return f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        return asdict(self)

    def status(self) -> JobStatus:
        """Return the job's current status; if the job has a durable outcome, that decides.

        Raises:
            SignatureError: The record or the outcome, in a bucket, is not signed with your key.
        """
        from kinetic.jobs.services import look_limit

        return self._status(look_limit())

    def _status(self, limit: OutageLimit) -> JobStatus:
        from kinetic.jobs.status import look

        record = self._record_within(limit)
        view = look(record, self._services.limited(limit), verify=self._verify)
        self._session.final = view.outcome
        return view.status

    def outcome(self) -> JobOutcome:
        """Return what happened so far, per attempt and host, without unpickling anything.

        Raises:
            SignatureError: The record or the outcome, in a bucket, is not signed with your key.
        """
        from kinetic.jobs.services import look_limit
        from kinetic.jobs.status import job_outcome

        limit = look_limit()
        record = self._record_within(limit)
        return job_outcome(record, self._services.limited(limit), verify=self._verify)

    def usage(self, attempt: int | None = None) -> dict[int, Usage]:
        """Return what each host used over time, by its number: processors, memory, GPUs or TPU chips.

        *attempt* is the number of an attempt; None is the latest. The samples are kept as long as the log. A function
        that runs for less than ten seconds has none.

        Raises:
            InvalidRequestError: There is no such attempt.
        """
        from kinetic.jobs.usage import job_usage

        return job_usage(self._services.store, self._record, self._services.verify, attempt)

    def log_lines(
        self,
        *,
        follow: bool = False,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
    ) -> Iterator[LogLine]:
        """Iterate over log lines; with *follow*, until the job ends, its last line included.

        *attempt* is the number of an attempt, or `all` of them in order; None is the latest, with later ones if
        it is followed. *tail* begins that many lines before the end of each.

        With *follow*, what interrupts the log meanwhile, such as an expired login, is printed to stderr,
        unless the program handles the messages of the logger `kinetic`.

        Raises:
            InvalidRequestError: There is no log of *attempt*; the iterator raises it.
        """
        from kinetic.jobs.logs import followed_lines, log_lines

        read = followed_lines if follow else log_lines
        return read(self._record, self._services, tail=tail, attempt=attempt)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the log line by line until the job ends, also if it has not begun. An interrupt leaves it alone."""
        return (line.shown for line in self.log_lines(follow=True))

    def logs(
        self, follow: bool = False, *, attempt: int | Literal["all"] | None = None
    ) -> str | None:
        """Return the log so far; with *follow*, print it until the job ends, each line on its stream.

        *attempt* is the number of an attempt, or `all` of them in order; None is the latest.

        Raises:
            InvalidRequestError: There is no log of *attempt*.
        """
        from kinetic.console import log_printer

        if not follow:
            return "".join(f"{line.shown}\n" for line in self.log_lines(attempt=attempt))
        with closing(log_printer()) as printer:
            for line in self._followed_parts(attempt=attempt):
                printer.line(line)
        return None

    def _followed_parts(self, **part: Any) -> Iterator[LogLine]:
        from kinetic.jobs.logs import followed_lines

        return followed_lines(self._record, self._services, pieces=True, **part)

    def tail(self, n: int = 100) -> str:
        """Return the last *n* lines of the log of the latest attempt.

        Raises:
            InvalidRequestError: *n* is not a whole number of at least 0.
        """
        from kinetic.quantities import parse_count

        n = parse_count("n", n)
        return "\n".join(line.shown for line in self.log_lines(tail=n))

    def result(
        self,
        timeout: float | None = None,
        cleanup: bool | None = None,
        cleanup_timeout: float = 180,
        cleanup_poll_interval: float = 2,
        stream_logs: bool | None = None,
        on_status_change: Callable[[JobStatus], None] | None = None,
    ) -> T_co:
        """Wait for the job to end; return its value or raise its exception.

        A further call returns the same value, or raises the same exception, also after the clean-up.

        Args:
            timeout: Seconds to wait; None means no limit.
            cleanup: Remove the resource and the artifacts once the value is fetched. None means yes,
                except for debug jobs and members of a batch. A failed job is not cleaned up.
            cleanup_timeout: Seconds to wait until the resource is gone.
            cleanup_poll_interval: Seconds between two checks during that wait.
            stream_logs: Print the log while waiting, each line on its stream. None means no.
            on_status_change: Called with each new status, including the first and the last one; its
                exceptions are logged and otherwise ignored.

        Raises:
            TimeoutError: *timeout* has passed; the job continues, or its value is kept, and the handle
                stays valid.
            RuntimeError: The job failed, but not by an exception of its function.
            Exception: The exception of the function, with the remote traceback in its notes.
        """
        from kinetic.console import log_printer

        printer = log_printer() if stream_logs else None
        try:
            value: T_co = self._collect(
                timeout=timeout,
                cleanup=cleanup,
                cleanup_timeout=cleanup_timeout,
                cleanup_poll_interval=cleanup_poll_interval,
                on_line=printer.line if printer else None,
                on_status_change=on_status_change,
            )
        finally:
            if printer:
                printer.close()
        return value

    def __await__(self) -> Generator[Any, None, T_co]:
        """Wait for the result without blocking the event loop; cancelling the wait does not stop the job."""
        from kinetic.jobs.collect import result_of

        return result_of(self).__await__()

    def cancel(self, cleanup_timeout: float = 180, cleanup_poll_interval: float = 2) -> None:
        """Stop the job. A job that has already finished keeps its outcome.

        Raises:
            JobNotFoundError: There is no such job.
            JobError: The job still runs after *cleanup_timeout* seconds.
            SignatureError: The job was submitted with another key than yours.
        """
        from kinetic.jobs.stop import cancel
        from kinetic.quantities import check_pauses

        check_pauses(cleanup_timeout=cleanup_timeout, cleanup_poll_interval=cleanup_poll_interval)
        cancel(
            self._record,
            self._services,
            timeout=cleanup_timeout,
            poll_interval=cleanup_poll_interval,
            stored=self._session.stored,
        )

    def cleanup(
        self,
        k8s: bool = True,
        gcs: bool = True,
        cleanup_timeout: float = 180,
        cleanup_poll_interval: float = 2,
    ) -> None:
        """Remove the job's resource (*k8s*) and its artifacts in the store (*gcs*).

        Logs and everything under `KINETIC_OUTPUT_DIR` stay. A job that still runs is cancelled. The outcome of a member of
        a batch stays, so that the member does not run again; the clean-up of the batch removes it.

        Raises:
            JobError: The resource is still there after *cleanup_timeout* seconds, or the job still runs
                and only its artifacts were to be removed.
        """
        from kinetic.jobs.stop import clean_up
        from kinetic.quantities import check_pauses

        check_pauses(cleanup_timeout=cleanup_timeout, cleanup_poll_interval=cleanup_poll_interval)
        clean_up(
            self._record,
            self._services,
            resource=k8s,
            artifacts=gcs,
            timeout=cleanup_timeout,
            poll_interval=cleanup_poll_interval,
            stored=self._session.stored,
        )

    def replay(self) -> JobHandle[T_co]:
        """Start the job's own call, with the project as it was, once more on this machine; return the new job's handle.

        It is a local job in this interpreter, in the shape of the accelerator, with a folder of outputs of its own.
        Captured variables have the values that they have here.

        Raises:
            InvalidRequestError: It belongs to a batch, was cleaned up, is from another minor version of Python, or this
                machine cannot run it; the message says which.
            IntegrityError: The call in the store is not the one that was submitted.
        """
        from importlib import import_module

        # By its name: `submit` makes handles, and imports this module.
        started: JobHandle[T_co] = import_module("kinetic.submit.replay").replay(self)
        return started

    def debug_attach(
        self, local_port: int = 5678, working_dir: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Wait for debugpy in the job, forward its port, and print what VS Code needs to attach to it.

        Returns the process that forwards the port; end it with `kinetic.debug.cleanup_port_forward`. It
        ends by itself when this process ends.

        Args:
            local_port: Port to which the debugger connects on this machine; 0: any free one. A local job
                listens on a port of its own, which is printed.
            working_dir: The project's folder here, for the path mappings. None means the project that this
                process submitted, or else the project of the working directory.

        Raises:
            JobError: The job is not a debug job, it ended before debugpy was ready, or it is a local job
                of another machine.
            InvalidRequestError: *local_port* is taken.
        """
        session = self._open_debug_session(local_port=local_port, working_dir=working_dir)
        sys.stdout.write(f"{session.instructions}\n")
        sys.stdout.flush()
        return session.process

    def _open_debug_session(self, *, local_port: int, working_dir: str | None) -> DebugSession:
        from kinetic.jobs.debugging import open_session

        return open_session(self, local_port=local_port, working_dir=working_dir)

    def _collect(
        self,
        *,
        timeout: float | None = None,
        cleanup: bool | None = None,
        cleanup_timeout: float = 180,
        cleanup_poll_interval: float = 2,
        on_line: Callable[[LogLine], None] | None = None,
        on_status_change: Callable[[JobStatus], None] | None = None,
        stop: threading.Event | None = None,
        waiting: Callable[[Watch], object] | None = None,
        track: TrackProgress | None = None,
        warn: Callable[[str], None] | None = None,
        keep: Keep | None = None,
        on_reason: Callable[[str], object] | None = None,
    ) -> Any:
        from kinetic.console import progress_beside
        from kinetic.jobs.collect import collect
        from kinetic.jobs.fetch import add_notes
        from kinetic.jobs.missing_files import note_on, with_own_paths
        from kinetic.jobs.outages import WaitStopped
        from kinetic.quantities import check_pauses
        from kinetic.user_warnings import warn_caller
        from kinetic_payload.errors import KineticError
        from kinetic_payload.progress import silent

        check_pauses(cleanup_timeout=cleanup_timeout, cleanup_poll_interval=cleanup_poll_interval)
        warn = warn or warn_caller
        session = self._session
        # The pickle of a value that was collected before was not kept, so fetch it again.
        collected = None if keep else session.collected
        if collected is None:
            try:
                fetched = collect(
                    self._record,
                    self._services,
                    verify=self._verify,
                    track=track or (silent if self._quiet else progress_beside(log.info)),
                    timeout=timeout,
                    on_line=on_line,
                    on_status_change=on_status_change,
                    stop=stop,
                    waiting=waiting,
                    warn=warn,
                    keep=keep,
                    on_reason=on_reason,
                )
            except KineticError:
                # Another thread may have collected this handle's result, and cleaned up, meanwhile.
                collected = session.collected
                if collected is None:
                    raise
            else:
                if error := fetched.error:
                    note = note_on(error, session.project)
                    own = partial(with_own_paths, project=session.project)
                    add_notes(error, [note] if note else [], own)
                with session.lock:
                    collected = session.collected = session.collected or fetched
        if stop is not None and stop.is_set():
            # The caller gets no value, so the job is not cleaned up.
            raise WaitStopped
        if cleanup is None:  # A batch is cleaned up as a whole.
            cleanup = not self.debug and self.group_index is None
        if collected.succeeded and cleanup:
            self._clean_up_after_success(cleanup_timeout, cleanup_poll_interval, warn)
        return collected.get()

    def _clean_up_after_success(
        self, timeout: float, poll_interval: float, warn: Callable[[str], None]
    ) -> None:
        from kinetic.job_status import JobStatus
        from kinetic.jobs.stop import clean_up
        from kinetic.user_warnings import warn_or_log

        if self._session.cleaned_up:
            return
        removal_began = threading.Event()
        try:
            clean_up(
                self._record,
                self._services,
                resource=True,
                artifacts=True,
                timeout=timeout,
                poll_interval=poll_interval,
                status=JobStatus.SUCCEEDED,
                before_removal=removal_began.set,
            )
            self._session.cleaned_up = True
        except Exception as error:  # noqa: BLE001 - whatever it is, the value was fetched
            warn_or_log(
                f"The result of {self.job_id} was collected, but its clean-up failed: {error}", warn
            )
        except KeyboardInterrupt:
            if not removal_began.is_set():
                raise
            # The job cannot be collected again: the value would be lost.
            warn_or_log(
                f"Interrupted while cleaning up {self.job_id}, which has finished: its result is "
                "returned, and what is left of the job is removed later.",
                warn,
            )

    @property
    def _session(self) -> Session:
        """The state of this handle; a copy of the handle starts with an empty state."""
        session: Session = self.__dict__.setdefault("_session", Session())
        return session

    def _verify(self) -> None:
        """Make sure, once, that a record from a bucket is signed with our key."""
        session = self._session
        if session.stored is None or session.verified:
            return
        from kinetic_payload.layout import JobObjects

        self._services.verify(session.stored, JobObjects(self.job_id).handle)
        session.verified = True

    @property
    def _settings(self) -> Settings:
        from kinetic.settings.settings import Settings

        return self._session.settings or Settings.from_environment()

    @property
    def _record(self) -> JobRecord:
        """The persisted record, which has more fields than the handle; else one with the handle's fields."""
        return self._record_within(None)

    def _record_within(self, limit: OutageLimit | None) -> JobRecord:
        session = self._session
        if session.record is None:
            from kinetic.jobs.records import find_record
            from kinetic.jobs.services import open_at
            from kinetic_payload.records.job import JobRecord
            from kinetic_payload.stores.store import parse_location

            location = parse_location(self.bucket_name)
            store = session.services.store if session.services else open_at(location)
            found = find_record(store.limited(limit) if limit else store, self.job_id)
            session.stored = found.data if found else None
            session.record = found.record if found else JobRecord(**self.to_dict())
        return session.record

    @property
    def _services(self) -> Services:
        session = self._session
        if session.services is None:
            from kinetic.jobs.services import connect
            from kinetic.target import Target
            from kinetic_payload.stores.store import parse_location

            target, location = Target.of(self._record), parse_location(self.bucket_name)
            services = connect(self.backend, target, location, self._settings)
            if self.group_index is not None:
                from kinetic.jobs.members import member_services

                services = member_services(services, self._record)
            session.services = services
        return session.services

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields alone, without connections and collected values."""
        return self.to_dict()


def handle_of(
    record: JobRecord, services: Services | None = None, *, stored: bytes | None = None
) -> JobHandle:
    """Return the handle of *record*, which uses *services* instead of connecting by itself.

    *stored* are the bytes that the record was read from. They are verified before anything is unpickled. A record
    that never left this process is not.
    """
    handle = JobHandle.from_job_context(record, record.backend, record.namespace, record.k8s_name)
    session = handle._session
    session.record, session.services, session.stored = record, services, stored
    return handle


def result_keeping(
    handle: JobHandle,
    keep: Keep,
    *,
    timeout: float | None = None,
    on_status_change: Callable[[JobStatus], None] | None = None,
) -> Any:
    """Return the result of *handle* without a clean-up; first call *keep* with the value's pickle.

    Raises:
        ResultUnreadableError: The value cannot be unpickled here; *keep* was called.
    """
    return handle._collect(
        timeout=timeout, cleanup=False, on_status_change=on_status_change, keep=keep
    )
