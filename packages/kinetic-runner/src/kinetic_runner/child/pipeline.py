"""(child) Run the phases of one host in order; a failure names its phase."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

import cloudpickle

from kinetic_payload import layout
from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.calls import call as calls
from kinetic_payload.calls import main_module
from kinetic_payload.calls.call import CallHeader, LoadedCall
from kinetic_payload.calls.unpickle import python_version
from kinetic_payload.data import references
from kinetic_payload.errors import IntegrityError, KineticError
from kinetic_payload.files.private import make_folder
from kinetic_payload.layout import Env, JobObjects
from kinetic_payload.project import context as contexts
from kinetic_payload.records.attempt_result import is_error_of_lost_peer
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Phase, Pickled, Reason
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.child import restart, result
from kinetic_runner.child.call import (
    CallEnd,
    Exited,
    Raised,
    Returned,
    Stopped,
    invoke,
)
from kinetic_runner.child.devices import DeviceCheck
from kinetic_runner.child.forks import leave_if_forked
from kinetic_runner.child.light_kinetic import with_kinetic
from kinetic_runner.child.skew import Fingerprint, Skew, import_note, leading, skews_of
from kinetic_runner.child.stop_requests import Stopping, Terminated, sigterm_is_native
from kinetic_runner.child.tracebacks import MESSAGE_LIMIT, bounded, causes_of, message_of, type_name
from kinetic_runner.data import inputs
from kinetic_runner.data.earlier import EarlierFiles
from kinetic_runner.store_retries import WAIT, retry_in_new_pod, retry_notice
from kinetic_runner.task import Task
from kinetic_runner.workspace import Workspace, disk_words, import_path

if TYPE_CHECKING:
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.progress import TrackProgress

Send = Callable[[dict[str, Any]], None]

_STDERR: Final = 2

_DOING: Mapping[str, str] = {
    "fetch": "fetch the call",
    "verify": "verify the call",
    "extract": "extract the project's files",
    "environment": "prepare the environment",
    "unpickle": "rebuild the call",
    "data": "provide the call's data",
}


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What the phases use of `kinetic_payload`, the environment and the clock."""

    open_store: Callable[[str], Store]
    fetch_context: Callable[[Store, str, Path], object]
    extract: Callable[[Path, Path, str], object]
    read_header: Callable[[BinaryIO], CallHeader]
    rebuild_main: Callable[[CallHeader, Path], object]
    load_call: Callable[[BinaryIO, CallHeader], LoadedCall]
    download: inputs.Download
    environment: Mapping[str, str]
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic


def run(task: Task, send: Send, tools: Tools | None = None) -> HostOutcome:
    """Do all of *task* in this process and return how it ended; raises nothing.

    Changes the process: its working folder, `sys.path`, `__main__`, signals, and with private mounts its
    view of the file system. Call it from the main thread, before others start.
    """
    faulthandler.enable(_STDERR)
    # Not undone at the end: a signal must not kill the process before the outcome is sent.
    stopping = Stopping.install(task.stop_fd, task.stop_file)
    host = _Host(task, send, tools or _tools(), stopping)
    try:
        try:
            return host.run()
        except BaseException as error:  # noqa: BLE001 - every failure is reported
            return host.report_failure(error)
    except BaseException as error:  # noqa: BLE001 - SIGTERM interrupted the report; it does so only once
        return host.report_failure(error)


@dataclass
class _Host:
    """One host, and its current phase."""

    task: Task
    send: Send
    tools: Tools
    stopping: Stopping
    phase: Phase = "fetch"
    phases: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    skews: tuple[Skew, ...] = ()
    store: Store | None = None
    has_warned: bool = False

    def __post_init__(self) -> None:
        self.pid = os.getpid()
        self.started_at = self.tools.now()
        if self.task.started_at is not None:
            self.started_at = self.task.started_at
            self.phases["environment"] = self.task.install_seconds
        self.new_pod_until = self.tools.clock() + self.task.new_pod_seconds
        self.names = JobObjects(self.task.record.job_id)
        self.space = Workspace(self.task.arguments.workspace)
        self.earlier = EarlierFiles(self.space.root)
        self.devices = DeviceCheck(
            self.tools.environment, lambda seen: self.send({"devices": seen})
        )
        kept = self.task.arguments.pending_uploads
        self.pending_uploads = PendingUploads(kept) if kept else None

    @property
    def value_name(self) -> str:
        return self.names.host_value(self.task.attempt, self.task.host)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Report that *phase* begins, and record how long it takes, also if it fails."""
        self.stopping.check()
        self.phase = phase
        self.send({"phase": phase})
        began = self.tools.clock()
        try:
            yield
        except BaseException as error:
            leave_if_forked(self.pid, error)
            raise
        finally:
            leave_if_forked(self.pid)
            took = self.tools.clock() - began
            self.phases[phase] = round(self.phases.get(phase, 0.0) + took, 6)

    def run(self) -> HostOutcome:
        task, tools, space = self.task, self.tools, self.space
        record = task.record
        if task.started_at is not None:
            restart.receive_signals()
        elif record.environment_digest is not None:
            self.install(record.environment_digest)
        with self.during("fetch"):
            if task.started_at is None:
                self.put_aside()
            space.make()
            self.store = store = tools.open_store(task.arguments.store)
            if not self.earlier.take_file(space.payload, digest=record.payload_digest):
                self.retry_in_new_pod(lambda: store.download(self.names.payload, space.payload))
            # The digest is that of the archive's content, so extracting the archive verifies it.
            context = record.context_digest
            reused = context is not None and self.earlier.take_file(space.context)
            if context is not None and not reused:
                self.retry_in_new_pod(lambda: tools.fetch_context(store, context, space.context))
        with self.during("verify"):
            _verify(space.payload, record.payload_digest)
        with self.during("extract"):
            if context is not None:
                self.extract(store, context, reused=reused)
        with space.payload.open("rb") as stream:
            with self.during("environment"):
                header, decided = self.prepare(stream)
            with self.during("unpickle"):
                call = tools.load_call(stream, header)
                for text in call.warnings:
                    self.warn(text)
        if not task.keeps_inputs:
            space.payload.unlink()
        with self.during("data"):
            inputs.provide(decided, store, tools.download, self.earlier)
            self.earlier.remove()
            if _is_debugged(task):
                from kinetic_runner.child import debugger

                debugger.wait_for_client(lambda: self.stopping.stop_requested)
        with self.during("call"):
            end = invoke(call.function, call.args, call.kwargs, self.stopping)
            leave_if_forked(self.pid, None if isinstance(end, Returned) else end.error)
        return self.report_end(end, store)

    def put_aside(self) -> None:
        make_folder(self.space.root)
        self.earlier.put_aside()

    def install(self, digest: str) -> NoReturn:
        """Install the job's packages, and start this child again: modules that they replace may be imported."""
        from kinetic_runner.child import installer

        with self.during("environment"):
            self.put_aside()
            self.earlier.discard(self.space.environment)
            inputs = self.space.root / "packages"
            archive = self.space.root / "packages.zip"
            store = self.tools.open_store(self.task.arguments.store)
            self.retry_in_new_pod(lambda: self.tools.fetch_context(store, digest, archive))
            with contexts.discarded_if_damaged(store, layout.context_object(digest)):
                self.tools.extract(archive, inputs, digest)
            variables = installer.install(
                inputs, self.space, self.tools.environment, lambda line: _log(f"[uv] {line}\n")
            )
            archive.unlink()
            shutil.rmtree(inputs)
        restart.restart(
            replace(
                self.task,
                started_at=self.started_at,
                install_seconds=self.phases["environment"],
            ),
            variables,
            without=(Env.INDEX_NETRC, Env.PACKAGE_CACHE, installer.HIDING),
        )

    def retry_in_new_pod(self, action: Callable[[], object]) -> None:
        retry_in_new_pod(
            action,
            seconds=self.new_pod_until - self.tools.clock(),
            pause=WAIT,
            warn=lambda text: _log(f"[kinetic] {text}\n"),
        )

    def extract(self, store: Store, digest: str, *, reused: bool) -> None:
        """Extract the project; replace an archive of an earlier attempt that was changed since."""
        space = self.space
        if reused:
            try:
                self.tools.extract(space.context, space.project, digest)
            except (KineticError, OSError):
                shutil.rmtree(space.project)
                space.context.unlink(missing_ok=True)
                space.make()
                self.tools.fetch_context(store, digest, space.context)
                reused = False
        if not reused:
            with contexts.discarded_if_damaged(store, layout.context_object(digest)):
                self.tools.extract(space.context, space.project, digest)
        if not self.task.keeps_inputs:
            space.context.unlink(missing_ok=True)

    def prepare(self, stream: BinaryIO) -> tuple[CallHeader, inputs.Plan]:
        """Prepare everything that user code may use. Unpickling then imports user code."""
        task, tools, space = self.task, self.tools, self.space
        header = tools.read_header(stream)
        if header.context_digest != task.record.context_digest:
            raise IntegrityError("The call belongs to another snapshot than the job names.")
        self.skews = skews_of(
            Fingerprint(header.python, header.cloudpickle, header.platform), _here()
        )
        for skew in self.skews:
            if not skew.silent:
                self.warn(skew.warning)
        decided = inputs.plan(header.data, space, private_mounts=task.private_mounts)
        references.place(dict(decided.paths))
        cwd = space.within_project(header.cwd)
        # An ignored folder is not in the snapshot, but the function may run in it.
        cwd.mkdir(parents=True, exist_ok=True)
        if decided.binds:
            from kinetic_runner.data import mounts

            inputs.make_mount_points(decided)
            # Do this before user code is imported: threads that user code starts earlier keep the old view.
            mounts.enter(decided.binds, read_only=decided.read_only)
        os.chdir(cwd)
        sys.path[:] = import_path(with_kinetic(sys.path), map(space.within_project, header.paths))
        sys.argv = [str(space.within_project(header.main)) if header.main else ""]
        tools.rebuild_main(header, space.project)
        self.devices.install()
        _prepare_environment(task, tools.environment, space, header.cwd, self.on_joined)
        return header, decided

    def on_joined(self) -> None:
        """Make sure that a stop reaches the function although JAX handles SIGTERM."""
        if sigterm_is_native():
            self.stopping.requests.watch()
            self.send({"sigterm": "native"})

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.send({"warning": text})

    def report_end(self, end: CallEnd, store: Store) -> HostOutcome:
        """Report how the function ended."""
        if self.stopping.came_late:
            self.send({"undisturbed": True})
        match end:
            case Returned(value):
                with self.during("report"):
                    return self.report_value(value, store)
            case Stopped(error):
                return self.report_stop(self.info(error))
            case Exited(error):
                self.send({"phase": "report"})  # From now on a stop does not change the outcome.
                return self.outcome(
                    "exited", layout.EXIT_FUNCTION_FAILED, end.message, self.info(error)
                )
            case Raised(error):
                self.send({"phase": "report"})
                message = f"{type_name(error)}: {message_of(error)}"
                note = import_note(self.skews, error)
                if note is not None:
                    error.add_note(note)
                code = layout.EXIT_FUNCTION_FAILED
                if (fault := self.devices.fault_of(error)) is not None:
                    message, code = fault.message, fault.exit_code
                outcome = self.outcome("exception", code, message, self.info(error))
                lost = code == layout.EXIT_FUNCTION_FAILED and _is_of_lost_peer(error)
                return replace(outcome, lost_peer=True) if lost else outcome

    def report_value(self, value: Any, store: Store) -> HostOutcome:
        """Store the value if this is the leader; values of other hosts are not needed."""
        if self.task.host != 0:
            return self.outcome("returned", layout.EXIT_SUCCESS)
        try:
            kept = result.keep(
                value,
                store,
                self.value_name,
                pending_uploads=self.pending_uploads,
                replace=self.task.signed,
                seconds=self.task.arguments.report_seconds,
                on_failure=self.on_report_failure,
            )
        except result.UnpicklableValueError as error:
            info = result.error_info(error, None, self.value_name)
            return self.outcome(
                "exception",
                layout.EXIT_FUNCTION_FAILED,
                error.message,
                info,
                value_repr=result.short_repr(value),
            )
        return self.outcome("returned", layout.EXIT_SUCCESS, value=kept)

    def report_failure(self, error: BaseException) -> HostOutcome:
        """Report a failure outside of the function."""
        self.stopping.only_record()
        info = self.info(error)
        if self.stopping.stop_requested:
            return self.report_stop(info)
        words = disk_words(error, self.space.root) or message_of(error)
        if self.phase == "unpickle":
            words = leading(self.skews, f"{type_name(error)}: {words}")
        message = f"Kinetic could not {_DOING.get(self.phase, 'report the value')}: {words}"
        called = self.phase in ("call", "report")
        code = layout.EXIT_FUNCTION_FAILED if called else layout.EXIT_NOT_PREPARED
        if (
            fault := self.devices.fault_of(error)
        ) is not None:  # A module of the user looked for devices.
            message, code = fault.message, fault.exit_code
        elif _is_of_failed_join(error):
            # Another host, or the network between them, is the reason: the next attempt may do better.
            outcome = self.outcome("exception", layout.EXIT_FUNCTION_FAILED, message, info)
            return replace(outcome, lost_peer=True)
        return self.outcome("exception", code, message, info)

    def info(self, error: BaseException) -> ErrorInfo:
        return result.error_info(
            error,
            self.store,
            self.value_name,
            pending_uploads=self.pending_uploads,
            replace=self.task.signed,
            seconds=self.task.arguments.report_seconds,
            on_failure=self.on_report_failure,
        )

    def on_report_failure(self, error: Exception) -> None:
        """Log once why the value cannot be stored; a retry may succeed, so the outcome omits this."""
        if not self.has_warned:
            self.has_warned = True
            words = disk_words(error, self.space.root) or message_of(error)
            again = retry_notice(self.task.arguments.report_seconds)
            text = f"The value cannot be stored yet: {words.rstrip('.')}. {again}"
            self.send({"warning": text})
            if self.pending_uploads is not None:
                self.pending_uploads.note(text)

    def report_stop(self, info: ErrorInfo) -> HostOutcome:
        message = f"Stopped by SIGTERM in the phase {self.phase}."
        return self.outcome("terminated", layout.EXIT_TERMINATED, message, info)

    def outcome(
        self,
        reason: Reason,
        exit_code: int,
        message: str = "",
        error: ErrorInfo | None = None,
        *,
        value: Pickled | None = None,
        value_repr: str | None = None,
    ) -> HostOutcome:
        task = self.task
        if error is not None:
            # A stop is not an error of the function, so its traceback is not logged.
            is_users = self.phase == "call" and error.type != type_name(Terminated())
            _log(error.traceback if is_users else f"[kinetic] {message}\n")
        return HostOutcome(
            job_id=task.record.job_id,
            attempt=task.attempt,
            host=task.host,
            succeeded=reason == "returned",
            reason=reason,
            phase=self.phase,
            exit_code=exit_code,
            message=bounded(message, MESSAGE_LIMIT),
            error=error,
            value=value,
            value_repr=value_repr,
            started_at=self.started_at,
            finished_at=self.tools.now(),
            phases=self.phases,
            python=_here().python,
            hostname=os.uname().nodename,
            warnings=tuple(self.warnings),
        )


def _verify(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise IntegrityError(
            f"The payload has the digest {found[:12]}…, the job was submitted with {expected[:12]}….",
            hint="It was changed in the store. Submit the job again.",
        )


def _is_of_lost_peer(error: BaseException) -> bool:
    return any(
        is_error_of_lost_peer(type_name(each), message_of(each)) for each in causes_of(error)
    )


def _is_of_failed_join(error: BaseException) -> bool:
    kind = getattr(sys.modules.get("kinetic_runner.child.distributed"), "DistributedError", None)
    return kind is not None and any(isinstance(each, kind) for each in causes_of(error))


def _is_debugged(task: Task) -> bool:
    # Only the leader: the other hosts run until they need it.
    return task.debug_port is not None and task.host == 0


def _prepare_environment(
    task: Task,
    environment: Mapping[str, str],
    space: Workspace,
    folder: str,
    on_joined: Callable[[], None],
) -> None:
    output = environment.get(Env.OUTPUT_DIR, "")
    if output and "://" not in output:
        Path(output).mkdir(parents=True, exist_ok=True)
    coordinator = environment.get(Env.COORDINATOR, "")
    if task.record.hosts > 1 and coordinator:
        from kinetic_runner.child import distributed

        debugged = task.debug_port is not None
        slice_ = distributed.Slice(coordinator, task.record.hosts, task.host, debugged=debugged)
        distributed.prepare(slice_, on_joined)
    tag = environment.get(Env.PATHWAYS, "")
    # User code may have chosen another platform.
    if tag and "proxy" in environment.get("JAX_PLATFORMS", "proxy").split(","):
        from kinetic_runner.child import pathways

        pathways.prepare(tag)
    if task.debug_port is not None and _is_debugged(task):
        from kinetic_runner.child import debugger

        debugger.listen(task.debug_port, str(space.project), folder)


def _log(text: str) -> None:
    """Write *text* to the end of the job's log, where users look first."""
    with suppress(Exception):  # User code may have put anything there, or closed it.
        sys.stderr.write(text)
        sys.stderr.flush()


def _here() -> Fingerprint:
    return Fingerprint(python_version(), cloudpickle.__version__, calls.platform_name())


def _download_data(store: Store, ref: DataRef, dest: Path, /, *, track: TrackProgress) -> None:
    from kinetic_payload.data.download import download_data  # Most calls have no data.

    download_data(store, ref, dest, track=track)


def _tools() -> Tools:
    return Tools(
        open_store=lambda location: open_store(parse_location(location)),
        fetch_context=contexts.fetch_context,
        extract=lambda source, dest, digest: extract_archive(source, dest, expected_digest=digest),
        read_header=calls.read_header,
        rebuild_main=main_module.rebuild,
        load_call=calls.load_call,
        download=_download_data,
        environment=os.environ,  # noqa: TID251 - the child gets its variables in no other way
    )
