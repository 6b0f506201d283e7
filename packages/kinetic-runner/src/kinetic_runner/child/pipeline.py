"""(child) Run the phases of one host in order; a failure names its phase."""

from __future__ import annotations

import faulthandler
import hashlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import cloudpickle

from kinetic_payload import layout
from kinetic_payload.archives.extract import extract_archive
from kinetic_payload.calls import call as calls
from kinetic_payload.calls import main_module
from kinetic_payload.calls.call import CallHeader
from kinetic_payload.calls.unpickle import python_version
from kinetic_payload.data import references
from kinetic_payload.errors import IntegrityError, KineticError
from kinetic_payload.files.private import make_folder
from kinetic_payload.layout import Env, JobObjects
from kinetic_payload.process_settings import INITIALIZATION_TIMEOUT, apply_settings, apply_to_keras
from kinetic_payload.project.context import fetch_context, named_if_damaged
from kinetic_payload.records.attempt_result import is_error_of_lost_peer
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Phase, Pickled, Reason
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.child.call import CallEnd, Exited, Raised, Returned, Stopped, invoke
from kinetic_runner.child.devices import DeviceCheck
from kinetic_runner.child.imports import after_import, with_kinetic
from kinetic_runner.child.result import (
    ResultStorage,
    UnpicklableValueError,
    error_info,
    keep_value,
    short_repr,
)
from kinetic_runner.child.shutdown import STOP_SIGNALS, leave_if_forked, restart
from kinetic_runner.child.skew import Fingerprint, Skew, import_note, skews_of
from kinetic_runner.child.stop_requests import Stopping, Terminated, sigterm_is_native
from kinetic_runner.child.streams import print_error
from kinetic_runner.child.tracebacks import MESSAGE_LIMIT, bounded, causes_of, message_of, type_name
from kinetic_runner.data import inputs
from kinetic_runner.data.reused_files import EarlierFiles
from kinetic_runner.store_retries import WAIT, retry_in_new_pod, retry_notice
from kinetic_runner.task import Task
from kinetic_runner.workspace import Workspace, disk_words, import_path

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


def run(
    task: Task, send: Send, *, on_end: Callable[[CallEnd], object] = lambda _: None
) -> HostOutcome:
    """Do all of *task* in this process and return how it ended; raises nothing.

    *on_end* is called with the end of the function once that is reported.

    Changes the process: its working folder, `sys.path`, `__main__`, signals, and with private mounts its
    view of the file system. Call it from the main thread, before others start.
    """
    faulthandler.enable(_STDERR)
    # Not undone at the end: a signal must not kill the process before the outcome is sent.
    host = _Host(task, send, Stopping.install(task.stop_fd, task.stop_file))
    host.on_end = on_end
    try:
        try:
            return host.run()
        except BaseException as error:  # noqa: BLE001 - every failure is reported
            return host.report_failure(error)
    except BaseException as error:  # noqa: BLE001 - SIGTERM interrupted the report; it does so only once
        return host.report_failure(error)


class _Host:
    """One host, and its current phase."""

    def __init__(self, task: Task, send: Send, stopping: Stopping) -> None:
        self.task = task
        self.send = send
        self.stopping = stopping
        self.environment: Mapping[str, str] = os.environ  # noqa: TID251 - it gets its variables in no other way
        self.pid = os.getpid()
        self.phase: Phase = "fetch"
        self.phases: dict[str, float] = {}
        self.started_at = time.time()
        if task.started_at is not None:
            self.started_at = task.started_at
            self.phases["environment"] = task.install_seconds
        self.new_pod_until = time.monotonic() + task.new_pod_seconds
        self.warnings: list[str] = []
        self.skews: tuple[Skew, ...] = ()
        self.names = JobObjects(task.record.job_id)
        self.space = Workspace(task.arguments.workspace)
        self.earlier = EarlierFiles(self.space.root)
        self.devices = DeviceCheck(self.environment, self._note_devices)
        self.pending_uploads = (
            PendingUploads(task.arguments.pending_uploads)
            if task.arguments.pending_uploads
            else None
        )
        self.storage: ResultStorage | None = None
        """None until the store is open."""
        self.has_warned = False
        self.on_end: Callable[[CallEnd], object] = lambda _: None

    def _note_devices(self, seen: str) -> None:
        self.send({"devices": seen})
        if seen.startswith("tpu:"):
            from kinetic_runner.child.tpu_usage import report_tpu

            report_tpu(self.send)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Report that *phase* begins, and record how long it takes, also if it fails."""
        self.stopping.check()
        self.phase = phase
        self.send({"phase": phase})
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            leave_if_forked(self.pid, error)
            raise
        finally:
            leave_if_forked(self.pid)
            took = time.monotonic() - began
            self.phases[phase] = round(self.phases.get(phase, 0.0) + took, 6)

    def run(self) -> HostOutcome:
        task, space = self.task, self.space
        if task.started_at is not None:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        elif task.record.environment_digest is not None:
            self.install(task.record.environment_digest)
        with self.during("fetch"):
            if task.started_at is None:
                self.put_aside()
            space.make()
            store = open_store(parse_location(task.arguments.store))
            self.storage = ResultStorage(
                store=store,
                name=self.names.host_value(task.attempt, task.host),
                pending_uploads=self.pending_uploads,
                replace=task.signed,
                seconds=task.arguments.report_seconds,
                on_failure=self.on_report_failure,
            )
            if not self.earlier.take_file(space.payload, digest=task.record.payload_digest):
                self.retry_in_new_pod(lambda: store.download(self.names.payload, space.payload))
            # The digest is that of the archive's content, so extracting the archive verifies it.
            given = self.fetch_input(store)
            context = task.record.context_digest
            reused = context is not None and self.earlier.take_file(space.context)
            if context is not None and not reused:
                self.retry_in_new_pod(lambda: fetch_context(store, context, space.context))
        with self.during("verify"):
            with space.payload.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            expected = task.record.payload_digest
            if found != expected:
                raise IntegrityError(
                    f"The payload has the digest {found[:12]}…, the job was submitted with {expected[:12]}….",
                    hint="It was changed in the store. Submit the job again.",
                )
        with self.during("extract"):
            if context is not None:
                self.extract(store, context, reused=reused)
        with space.payload.open("rb") as stream:
            with self.during("environment"):
                header, decided = self.prepare(stream, store)
            several = task.record.hosts > 1
            if several:
                # The call may import JAX, which joins the hosts: all must have their data by then.
                self.provide(decided, store)
            with self.during("unpickle"):
                call = calls.load_call(stream, header, given)
                for text in call.warnings:
                    self.warn(text)
        if not task.keeps_inputs:
            space.payload.unlink()
        if not several:
            self.provide(decided, store)
        with self.during("call"):
            end = invoke(call.function, call.args, call.kwargs, self.stopping)
            leave_if_forked(self.pid, None if isinstance(end, Returned) else end.error)
        outcome = self.report_end(end, self.storage)
        self.on_end(end)
        return outcome

    def fetch_input(self, store: Store) -> BinaryIO | None:
        """Return the pickle of this member's input; None if this is no member of a batch."""
        given = self.task.given
        if given is None:
            return None
        data = store.read(given.name, start=given.start, end=given.end)
        if hashlib.sha256(data).hexdigest() != given.digest:
            raise IntegrityError(f"Input {given.index} is not the one that was submitted.")
        return io.BytesIO(data)

    def provide(self, decided: inputs.Plan, store: Store) -> None:
        """Provide the data, and wait for the debugger if there is one."""
        with self.during("data"):
            inputs.provide(decided, store, self.earlier)
            given = self.task.given
            if given is not None and given.shares and self.task.host == 0:
                # For the other workers of the batch.
                from kinetic_payload.data.upload import ensure_data

                for key in given.shares:
                    digest = ensure_data(store, Path(decided.paths[key]))
                    self.send({"loaded": [key, digest]})
            self.earlier.remove()
            if self.is_debugged:
                from kinetic_runner.child import debugger

                debugger.wait_for_client(lambda: self.stopping.stop_requested)

    def put_aside(self) -> None:
        make_folder(self.space.root)
        self.earlier.put_aside()

    def install(self, digest: str) -> NoReturn:
        """Install the job's packages, and start this child again: modules that they replace may be imported."""
        import shutil

        from kinetic_runner.child import installer

        with self.during("environment"):
            self.put_aside()
            self.earlier.discard(self.space.environment)
            inputs = self.space.root / "packages"
            archive = self.space.root / "packages.zip"
            store = open_store(parse_location(self.task.arguments.store))
            self.retry_in_new_pod(lambda: fetch_context(store, digest, archive))
            _extract(store, archive, inputs, digest)
            variables = installer.install(
                inputs, self.space, self.environment, lambda line: print_error(f"[uv] {line}\n")
            )
            archive.unlink()
            shutil.rmtree(inputs)
        took = self.phases["environment"]
        restart(
            replace(self.task, started_at=self.started_at, install_seconds=took),
            variables,
            without=(Env.INDEX_NETRC, Env.PACKAGE_CACHE, installer.HIDING),
        )

    def retry_in_new_pod(self, action: Callable[[], object]) -> None:
        retry_in_new_pod(
            action,
            seconds=self.new_pod_until - time.monotonic(),
            pause=WAIT,
            warn=lambda text: print_error(f"[kinetic] {text}\n"),
        )

    def extract(self, store: Store, digest: str, *, reused: bool) -> None:
        """Extract the project; replace an archive of an earlier attempt that was changed since."""
        space = self.space
        if reused:
            try:
                extract_archive(space.context, space.project, expected_digest=digest)
            except (KineticError, OSError):
                import shutil

                shutil.rmtree(space.project)
                space.context.unlink(missing_ok=True)
                space.make()
                fetch_context(store, digest, space.context)
                reused = False
        if not reused:
            _extract(store, space.context, space.project, digest)
        if not self.task.keeps_inputs:
            space.context.unlink(missing_ok=True)

    def prepare(self, stream: BinaryIO, store: Store) -> tuple[CallHeader, inputs.Plan]:
        """Prepare everything that user code may use. Unpickling then imports user code."""
        task, space = self.task, self.space
        header = calls.read_header(stream)
        if header.context_digest != task.record.context_digest:
            raise IntegrityError("The call belongs to another snapshot than the job names.")
        self.skews = skews_of(
            Fingerprint(header.python, header.cloudpickle, header.platform), _here()
        )
        for skew in self.skews:
            if not skew.silent:
                self.warn(skew.text)
        given = task.given
        loaded = {} if given is None else given.loaded
        refs = [
            replace(ref, kind="local", digest=loaded[ref.key]) if ref.key in loaded else ref
            for number, ref in enumerate(header.data)
            if given is None or number < given.call_data or ref.key in given.data
        ]
        decided = inputs.plan(refs, space, private_mounts=task.private_mounts)
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
        main_module.rebuild(header, space.project)
        self.devices.install()
        apply_settings(task.record.settings or {}, os.environ)  # noqa: TID251 - what JAX reads
        after_import("keras", self.apply_to_keras)
        self.prepare_libraries(header.cwd, store)
        return header, decided

    def apply_to_keras(self, keras: Any) -> None:
        try:
            apply_to_keras(self.task.record.settings or {}, keras)
        except Exception as error:  # noqa: BLE001 - another version of Keras than the submitter's
            self.warn(f"Keras has other settings than where the job was submitted: {error}")

    def prepare_libraries(self, folder: str, store: Store) -> None:
        """Prepare the output folder, JAX and the debugger of a function that runs in *folder* of the project."""
        task, environment = self.task, self.environment
        output = environment.get(Env.OUTPUT_DIR, "")
        if output and "://" not in output:
            Path(output).mkdir(parents=True, exist_ok=True)
        coordinator = environment.get(Env.COORDINATOR, "")
        if task.record.hosts > 1 and coordinator:
            from kinetic_runner.child import distributed

            slice_ = distributed.Slice(
                coordinator,
                task.record.hosts,
                task.host,
                debugged=task.debug_port is not None,
                timeout=int((task.record.settings or {}).get(INITIALIZATION_TIMEOUT, 0)) or None,
            )
            meet = partial(distributed.wait_for_hosts, store, self.names, task.attempt, slice_)
            distributed.prepare(slice_, meet, self.on_joined)
        tag = environment.get(Env.PATHWAYS, "")
        # User code may have chosen another platform.
        if tag and "proxy" in environment.get("JAX_PLATFORMS", "proxy").split(","):
            from kinetic_runner.child import pathways

            pathways.prepare(tag)
        if task.debug_port is not None and self.is_debugged:
            from kinetic_runner.child import debugger

            debugger.listen(task.debug_port, str(self.space.project), folder)

    @property
    def is_debugged(self) -> bool:
        # Only the leader: the other hosts run until they need it.
        return self.task.debug_port is not None and self.task.host == 0

    def on_joined(self) -> None:
        """Make sure that a stop reaches the function although JAX handles SIGTERM."""
        if sigterm_is_native():
            self.stopping.requests.watch()
            self.send({"sigterm": "native"})

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.send({"warning": text})

    def report_end(self, end: CallEnd, storage: ResultStorage) -> HostOutcome:
        """Report how the function ended."""
        if self.stopping.came_late:
            self.send({"undisturbed": True})
        match end:
            case Returned(value):
                with self.during("report"):
                    return self.report_value(value, storage)
            case Stopped(error):
                return self.report_stop(error_info(error, self.storage))
            case Exited(error):
                self.send({"phase": "report"})  # From now on a stop does not change the outcome.
                if error.code is not None and not isinstance(error.code, int):
                    print_error(f"{error.code}\n")  # As Python does.
                info, code = error_info(error, self.storage), layout.EXIT_FUNCTION_FAILED
                exited_with = error.code & 0xFF if isinstance(error.code, int) else 1
                outcome = self.outcome("exited", code, end.message, info)
                return replace(outcome, exited_with=exited_with)
            case Raised(error):
                self.send({"phase": "report"})
                message = f"{type_name(error)}: {message_of(error)}"
                note = import_note(self.skews, error)
                if note is not None:
                    error.add_note(note)
                code = layout.EXIT_FUNCTION_FAILED
                message, code = self.devices.fault_of(error) or (message, code)
                outcome = self.outcome("exception", code, message, error_info(error, self.storage))
                lost = code == layout.EXIT_FUNCTION_FAILED and any(
                    is_error_of_lost_peer(type_name(each), message_of(each))
                    for each in causes_of(error)
                )
                return replace(outcome, lost_peer=True) if lost else outcome

    def report_value(self, value: Any, storage: ResultStorage) -> HostOutcome:
        """Store the value if this is the leader; values of other hosts are not needed."""
        if self.task.host != 0:
            return self.outcome("returned", layout.EXIT_SUCCESS)
        try:
            kept = keep_value(value, storage)
        except UnpicklableValueError as error:
            return self.outcome(
                "exception",
                layout.EXIT_FUNCTION_FAILED,
                error.message,
                error_info(error, None),
                value_repr=short_repr(value),
            )
        return self.outcome("returned", layout.EXIT_SUCCESS, value=kept)

    def report_failure(self, error: BaseException) -> HostOutcome:
        """Report a failure outside of the function."""
        self.stopping.only_record()
        info = error_info(error, self.storage)
        if self.stopping.stop_requested:
            return self.report_stop(info)
        words = disk_words(error, self.space.root) or message_of(error)
        if self.phase == "unpickle":
            words = " ".join([*(skew.text for skew in self.skews), f"{type_name(error)}: {words}"])
        message = f"Kinetic could not {_DOING.get(self.phase, 'report the value')}: {words}"
        called = self.phase in ("call", "report")
        code = layout.EXIT_FUNCTION_FAILED if called else layout.EXIT_NOT_PREPARED
        joining = getattr(
            sys.modules.get("kinetic_runner.child.distributed"), "DistributedError", ()
        )
        if (fault := self.devices.fault_of(error)) is not None:
            message, code = fault  # A module of the user looked for devices.
        elif any(isinstance(each, joining) for each in causes_of(error)):
            # Another host, or the network between them, is the reason: the next attempt may do better.
            outcome = self.outcome("exception", layout.EXIT_FUNCTION_FAILED, message, info)
            return replace(outcome, lost_peer=True)
        return self.outcome("exception", code, message, info)

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
            if not is_users:
                print_error(f"[kinetic] {message}\n")
            elif reason == "exception":
                text = error.traceback.rstrip("\n")
                print_error(f"{layout.RAISED}{text.count(chr(10)) + 1}\n{text}\n")
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
            finished_at=time.time(),
            phases=self.phases,
            python=_here().python,
            hostname=os.uname().nodename,
            warnings=tuple(self.warnings),
        )


def _extract(store: Store, archive: Path, folder: Path, digest: str) -> None:
    with named_if_damaged(store, digest):
        extract_archive(archive, folder, expected_digest=digest)


def _here() -> Fingerprint:
    return Fingerprint(python_version(), cloudpickle.__version__, calls.platform_name())
