"""Submit a request: package, upload, record, start."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kinetic.backends.backend import Environment, Launch
from kinetic.errors import JobNotFoundError, KineticError, SubmitError
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.jobs.record import record_of
from kinetic.jobs.services import Services, connect, jobs_location
from kinetic.names import job_id_of, k8s_name_of
from kinetic.settings.home import make_home
from kinetic.settings.settings import environment, working_folder
from kinetic.submit.data_checks import check_data
from kinetic.submit.package import Package, Packaging
from kinetic.submit.rollback import Rollback, rollback_share
from kinetic.submit.warnings import (
    Notices,
    left_out_warning,
    no_project_warning,
    shared_store_warning,
)
from kinetic.user_warnings import warn_once
from kinetic_payload.layout import JobObjects
from kinetic_payload.process_settings import INITIALIZATION_TIMEOUT, jax_defaults, read_settings
from kinetic_payload.progress import silent
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.folder.marking import refuse_foreign_folder
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ABSENT
from kinetic_payload.threads import Executor, Future

if TYPE_CHECKING:
    from kinetic.batches.batch import Batch
    from kinetic.console import Console
    from kinetic.data import Data
    from kinetic.jobs.missing_files import Project
    from kinetic.submit.request import JobRequest
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.project.roots import Entry
    from kinetic_payload.stores.store import Store

_BUILDING: Final = (
    "the job's image or environment is not ready after 5 s: the first one with these dependencies takes "
    "minutes to build, and later jobs reuse it"
)
_SLOW = 12 * 3600.0
"""Seconds of upload after which the payload may soon be taken for the leftover of a killed submit
(`LEFT_AGE`).
"""


def submit(
    request: JobRequest,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    services: Services | None = None,
    console: Console | None = None,
    started: list[JobHandle] | None = None,
    clock: Callable[[], float] = time.time,
    batch: Batch | None = None,
    entry: Entry | None = None,
) -> JobHandle:
    """Start *request* and return a handle to it, at once.

    Args:
        request: The job to start.
        function: The function that the user called.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        services: The store and the backend; by default those that the request names.
        console: Shows progress; if it is None, progress is logged.
        started: Gets the handle once the submit can no longer be undone, even if this function raises
            afterwards. If it is None, an exception that is raised afterwards has a note that names the job.
        clock: The wall clock, which also counts while this machine sleeps.
        batch: The inputs, if it is a batch; the handle is then that of all members.
        entry: The script whose project is shipped, and which is the job's `__main__`; by default those of the function.

    Raises:
        KineticError: The job could not be packaged or started; nothing of it is left.
        KeyboardInterrupt: The submit was interrupted; nothing of the job is left unless a note says so.
    """
    handles: list[JobHandle] = [] if started is None else started
    try:
        return _submit(
            request, function, args, kwargs, services, console, handles, clock, batch, entry
        )
    except BaseException as error:
        if handles and started is None:
            job_id = handles[0].job_id
            error.add_note(
                f"The job was started, and keeps running: {job_id}\n"
                f'Come back with kinetic.attach("{job_id}"), or stop it: kinetic jobs cancel {job_id}'
                if batch is None
                else f'The batch was started, and keeps running: kinetic.attach_batch("{job_id}")'
            )
        raise


def _submit(
    request: JobRequest,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    services: Services | None,
    console: Console | None,
    handles: list[JobHandle],
    clock: Callable[[], float],
    batch: Batch | None,
    entry: Entry | None,
) -> JobHandle:
    from kinetic.console import is_terminal

    notices = Notices.to(console)
    warn = notices.warn
    for note in request.notes:
        warn(note)
    home = Path(request.settings.home.value)
    if services is None:
        location = jobs_location(request.settings, request.backend)
        services = connect(request.backend, request.target, location, request.settings)
    seconds = request.settings.store_timeout.value
    limit = OutageLimit(seconds - rollback_share(seconds), report=warn)
    limited = services.limited(limit)
    store, backend = limited.store, limited.backend
    refuse_foreign_folder(store.location)
    if store.location.kind == "folder" and not is_terminal(sys.stderr):
        notices = replace(notices, track=silent)  # Copies on this machine are not worth a line.
    warn_once(warn, shared_store_warning(store.location), *backend.check(request))
    if services.key_signer is not None:
        _ = services.key_signer.key  # Before anything is written: if this fails, nothing is left.
    notices.phase("packaging")
    call = Package(request, function, args, kwargs, store, notices, entry)
    with _translate_home_errors(home):
        make_home(str(home))

    def check(data: Data) -> None:
        check_data(data, request, limit, warn=warn)
        warn_once(warn, *backend.check(request, data))

    with closing(call), Executor(2) as executor:
        packaging = Packaging(call.plan, notices, executor)

        def prepare() -> Environment:
            slow = threading.Timer(5.0, warn, [_BUILDING])
            slow.daemon = True
            # A local job in this interpreter has no image to wait for, only a busy machine.
            if request.image.mode != "default" or not request.on_this_machine:
                slow.start()
            try:
                with _translate_home_errors(home):
                    prepared = backend.environment(request, packaging)
            finally:
                slow.cancel()
            packaging.checked.set_result(None)
            return prepared

        environment = executor.submit(prepare)
        with executor.stopped_by(environment):
            data = call.pack(check)
            if batch is not None:
                data = call.pack_inputs(batch.pack, check)
        packaging.snapshot.set_result(call.snapshot)
        packaging.reads_buckets.set_result(any(each.is_gcs for each in data))
        if call.plan.root is None:
            warn_once(warn, no_project_warning(working_folder()))
        left_out = left_out_warning(call.snapshot)
        warn_once(warn, left_out if console else None)  # Elsewhere, the log has it.
        checked = packaging.checked
        handle = start_call(
            request, services, limited, call, checked, environment, executor, handles, clock, batch
        )
    with suppress(Exception):  # A failing logger must not make the submit fail: the job runs.
        notices.phase(f"submitted {handle.job_id}")
    return handle


class Packed(Protocol):
    """A call that can be uploaded to a store."""

    payload_digest: str
    """Set by `upload`, as all that follows."""
    refs: tuple[DataRef, ...]

    @property
    def context_digest(self) -> str | None:
        """The digest of its snapshot; None if no files are shipped."""

    @property
    def project(self) -> Project | None:
        """The project of this machine that it ships."""

    def upload(
        self, job_id: str, writing: Callable[[str], AbstractContextManager[object]], /
    ) -> None:
        """Upload what the store does not have yet."""


def start_call(
    request: JobRequest,
    services: Services,
    limited: Services,
    call: Packed,
    checked: Future[None],
    environment: Future[Environment],
    executor: Executor,
    handles: list[JobHandle],
    clock: Callable[[], float],
    batch: Batch | None,
    *,
    settings: Mapping[str, str] | None = None,
) -> JobHandle:
    """Upload, record and start a packaged call; append its handle to *handles* and return it.

    The *environment* is prepared in parallel; nothing is uploaded before the dependencies are *checked*. *settings* of
    libraries are those of this process by default.
    """
    now, suffix = datetime.now(UTC), os.urandom(4).hex()[:7]
    job_id = job_id_of(request.accelerator.slug, request.function_name, now, suffix)
    if batch is not None:
        job_id = batch.group_id
        suffix = job_id[-8:-1]  # A name in Kubernetes has room for seven of its digits.
    rollback = Rollback(job_id, limited, request.settings.store_timeout.value, clock)
    store, began = limited.store, clock()
    try:
        with executor.stopped_by(environment):
            checked.result()
            call.upload(job_id, rollback.writing)
            if batch is not None:
                batch.inputs.upload(store, JobObjects(job_id), rollback.writing)
        prepared = environment.result()
        rollback.record = record_of(
            request,
            job_id=job_id,
            k8s_name=k8s_name_of(request.function_name, suffix),
            created_at=now,
            store=store.location,
            environment=prepared,
            settings=_process_settings(request) if settings is None else settings,
            payload_digest=call.payload_digest,
            context_digest=call.context_digest,
        )
        with limited.backend.announced(rollback.record) as record:
            rollback.record = record
            name = JobObjects(job_id).handle
            manifest = None if batch is None else batch.manifest_of(record)
            data = services.sign(encode(manifest or record), name)
            with rollback.writing(name):
                store.write(name, data, if_generation=ABSENT)
            rollback.note_record()
            if abs(clock() - began) > _SLOW:
                _renew_payload(job_id, store)
            launch = Launch(
                record=record,
                record_digest=sha256(data).hexdigest(),
                request=request,
                environment=prepared,
                data=call.refs,
                signing_key=None if services.key_signer is None else services.key_signer.key,
                batch=manifest,
                workers=() if manifest is None else tuple(range(manifest.workers)),
            )
            handle = handle_of(record, services)
            handle._session.project = call.project
            if batch is None:
                limited.backend.start(launch)
            else:
                batch.start(limited, launch)
            # Check after the start, because clean-up removes the record before it looks for a resource.
            # If the job was cancelled instead, its runner finds the outcome and does not call the function.
            if rollback.record_is_gone:
                raise JobNotFoundError(f"The record of {job_id} is gone.")
        handles.append(handle)
        return handle
    except BaseException as error:
        if handles:
            raise
        reason = rollback.run(error)
        if reason is error:
            raise
        raise reason from error


def _process_settings(request: JobRequest) -> dict[str, str]:
    variables = environment()
    defaults = jax_defaults(variables, Path(request.settings.home.value) / "defaults")
    settings = read_settings(variables, defaults)
    timeout = request.settings.jax_initialization_timeout
    return (
        settings
        if timeout.is_default
        else {**settings, INITIALIZATION_TIMEOUT: f"{timeout.value:.0f}"}
    )


def _renew_payload(job_id: str, store: Store) -> None:
    """Make sure that the payload exists and is not removed as the leftover of a killed submit.

    The collection of leftovers spares jobs that have a record. A collection that listed the jobs before
    this record existed removes only the generation of the payload that it saw.
    """
    name = JobObjects(job_id).payload
    found = store.stat(name)
    if found is None or store.renew(name, if_generation=found.generation) is None:
        raise SubmitError(
            f"The payload of {job_id} was removed from {store.location} before the job was started: "
            "its upload took longer than a day.",
            hint="Submit it again: the project and the data are still in the store.",
        )


@contextmanager
def _translate_home_errors(home: Path) -> Iterator[None]:
    """Translate the system's errors about files below *home* (`KINETIC_HOME`)."""
    try:
        yield
    except OSError as error:
        if isinstance(error, KineticError):
            raise
        raise SubmitError(
            f"Kinetic could not write below {home}: {error}.",
            hint="Make room or give yourself the right to write there, or name another folder with "
            "KINETIC_HOME.",
        ) from error
