"""Submit a request: package, upload, record, start."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinetic
from kinetic.backends.backend import Environment, Launch, Packaging
from kinetic.console import progress_beside
from kinetic.errors import JobNotFoundError, KineticError, SubmitError
from kinetic.jobs.handle import JobHandle, connected, handle_of
from kinetic.jobs.missing_modules import Project
from kinetic.jobs.record import record_of
from kinetic.jobs.services import Services, connect, jobs_location
from kinetic.names import job_id_of, k8s_name_of
from kinetic.notices import warn_caller
from kinetic.settings.home import make_home
from kinetic.settings.settings import user_home, working_folder
from kinetic.submit.data_checks import Worker, check_data
from kinetic.submit.package import Call, PackingOptions, Uploaded, pack, plan_of, upload
from kinetic.submit.rollback import Rollback, rollback_share
from kinetic.submit.warnings import (
    left_out_warning,
    no_project_warning,
    shared_store_warning,
    warn_once,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.stores.folder.marking import refuse_foreign_folder
from kinetic_payload.stores.outages import OutageLimit, limited
from kinetic_payload.stores.store import ABSENT
from kinetic_payload.threads import Executor, Future

if TYPE_CHECKING:
    from kinetic.console import Console
    from kinetic.submit.request import JobRequest
    from kinetic_payload.progress import TrackProgress
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Location, Store

_log = logging.getLogger("kinetic")

_SLOW = 12 * 3600.0
"""Seconds of uploading after which the payload may soon look like a killed submit's (`LEFT_AGE`)."""


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
    outage_limit: OutageLimit | None = None,
) -> JobHandle:
    """Start *request* and return a handle to it, at once.

    The handle is appended to *started* in the moment from which on the job goes on, whatever is raised
    here. Without that list, what is raised then has a note that names the job. *clock* tells the time,
    also that during which this machine sleeps. A store that cannot be reached is waited for as the
    settings say, or *outage_limit*.

    Raises:
        KineticError: It could not be packaged or started; nothing of this job stays behind.
        KeyboardInterrupt: Ctrl-C came; nothing of the job stays behind unless a note says so.
    """
    begun: list[JobHandle] = [] if started is None else started
    call = Call(function=function, args=tuple(args), kwargs=kwargs, volumes=request.volumes)
    seconds = request.settings.store_timeout.value
    limit = OutageLimit(
        seconds - rollback_share(seconds), report=warn_caller if console is None else console.note
    )
    try:
        with limited(outage_limit or limit):
            return _submit(request, call, services, console, begun, clock)
    except BaseException as error:
        if begun and started is None:
            job_id = begun[0].job_id
            error.add_note(
                f"The job was started, and goes on: {job_id}\n"
                f'Come back with kinetic.attach("{job_id}"), or stop it: kinetic jobs cancel {job_id}'
            )
        raise


def _submit(
    request: JobRequest,
    call: Call,
    services: Services | None,
    console: Console | None,
    begun: list[JobHandle],
    clock: Callable[[], float],
) -> JobHandle:
    say, warn, track = _voices(console)
    for note in request.notes:
        warn(note)
    home = Path(request.settings.home.value)
    services = services or _connected(request)
    refuse_foreign_folder(services.store.location)
    warn_once(warn, shared_store_warning(services.store.location))
    services.backend.check(request)
    # Made, or refused, before there is anything that it would have to sign.
    key = None if services.key_signer is None else services.key_signer.key
    options = _packing_options(request, home, services.store.location)

    say("packaging")
    plan = plan_of(call, options)
    with _written_below(home):
        make_home(str(home))
    check = partial(check_data, worker=_worker(request), warn=warn)
    reads_buckets = Future[bool]()
    packaging = Packaging(plan, reads_buckets.result, say)
    with Executor(2) as executor:
        environment = executor.submit(partial(_environment, request, services, packaging))
        packed = pack(call, plan, options, check=check, warn=warn, track=track)
        with closing(packed.call):
            reads_buckets.set_result(any(found.value.is_gcs for found in packed.call.data))
            if plan.root is None:
                warn_once(warn, no_project_warning(options.cwd))
            left_out = left_out_warning(packed.snapshot)
            if console is not None:
                warn_once(warn, left_out)
            send = partial(
                upload,
                packed,
                options=options,
                say=say,
                warn=partial(warn_once, warn),
                track=track,
            )
            handle = _start(
                request,
                services,
                send=partial(_sent, executor, environment, send),
                environment=environment.result,
                key=key,
                project=Project(plan.root),
                begun=begun,
                clock=clock,
            )
    with suppress(Exception):  # A logger that fails must not cost a job that runs.
        say(f"submitted {handle.job_id}")
    return handle


def _connected(request: JobRequest) -> Services:
    location = jobs_location(request.settings, request.backend)
    return connect(request.backend, request.target, location, request.settings)


def _sent(
    executor: Executor,
    environment: Future[Environment],
    send: Callable[..., Uploaded],
    **given: Any,
) -> Uploaded:
    """Upload with *send* until the *environment*, which is prepared meanwhile, cannot be had."""
    with executor.stopped_by(environment):
        return send(**given)


def _start(
    request: JobRequest,
    services: Services,
    *,
    send: Callable[..., Uploaded],
    environment: Callable[[], Environment],
    key: bytes | None,
    project: Project,
    begun: list[JobHandle],
    clock: Callable[[], float],
) -> JobHandle:
    """Upload, record and start what was packaged; put its handle into *begun*, and return it."""
    now, suffix = datetime.now(UTC), secrets.token_hex(4)[:7]
    job_id = job_id_of(request.accelerator.slug, request.function_name, now, suffix)
    made = Rollback(job_id, services, request.settings.store_timeout.value)
    store, began = services.store, clock()
    try:
        uploaded = send(store=store, job_id=job_id, writing=made.writing)
        place = environment()
        made.record = record_of(
            request,
            job_id=job_id,
            k8s_name=k8s_name_of(request.function_name, suffix),
            created_at=now,
            store=store.location,
            image=place.image,
            payload_digest=uploaded.payload_digest,
            context_digest=uploaded.context_digest,
        )
        with services.backend.announced(made.record) as record:
            made.record = record
            name = JobObjects(job_id).handle
            with made.writing(name):
                store.write(name, services.sign(encode(record), name), if_generation=ABSENT)
            made.recorded = True
            if abs(clock() - began) > _SLOW:
                _renew_payload(job_id, store)
            launch = Launch(
                record=record,
                request=request,
                environment=place,
                data=uploaded.data,
                signing_key=key,
            )
            handle = _handle(record, services, project)
            services.backend.start(launch)
            # After the start: whoever cleans up removes the record first, and looks for what runs
            # second. Of a job that was cancelled, the runner finds the outcome.
            if made.record_is_gone:
                raise JobNotFoundError(f"The record of {job_id} is gone.")
        begun.append(handle)
        return handle
    except BaseException as error:
        if begun:
            raise
        reason = made.run(error)
        if reason is error:
            raise
        raise reason from error


def _renew_payload(job_id: str, store: Store) -> None:
    """Make sure that nobody removes the payload as the leftover of a killed submit, or has done so.

    From its record on the job is left alone; who looked before that cannot remove a later generation.
    """
    name = JobObjects(job_id).payload
    found = store.stat(name)
    if found is None or store.renew(name, if_generation=found.generation) is None:
        raise SubmitError(
            f"The payload of {job_id} was removed from {store.location} before the job was started: "
            "its upload took longer than a day.",
            hint="Submit it again: what was uploaded besides is still there.",
        )


def _environment(request: JobRequest, services: Services, packaging: Packaging) -> Environment:
    with _written_below(Path(request.settings.home.value)):
        return services.backend.environment(request, packaging)


def _worker(request: JobRequest) -> Worker:
    here = request.on_this_machine
    return Worker(this_machine=here, this_interpreter=here and request.image.mode == "default")


@contextmanager
def _written_below(home: Path) -> Iterator[None]:
    """Turn what the system says about `KINETIC_HOME` into words about it."""
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


def _voices(
    console: Console | None,
) -> tuple[Callable[[str], None], Callable[[str], None], TrackProgress]:
    if console is not None:
        return console.phase, console.note, console.progress
    # Nobody watches, so what is only progress goes to the log, and what should be read is a warning.
    # What takes long is shown all the same to who sits at a terminal.
    return _log.info, warn_caller, progress_beside(_log.info)


def _packing_options(request: JobRequest, home: Path, store: Location) -> PackingOptions:
    settings = request.settings
    return PackingOptions(
        home=home,
        store=Path(store.path) if store.kind == "folder" else None,
        cwd=working_folder(),
        user_home=user_home(),
        root=settings.package_root.value,
        no_default_excludes=settings.no_default_excludes.value,
        context_warn_mb=settings.context_size_warn_mb.value,
        payload_warn_mb=settings.payload_size_warn_mb.value,
        kinetic_version=kinetic.__version__,
        this_machine=request.on_this_machine,
    )


def _handle(record: JobRecord, services: Services, project: Project) -> JobHandle:
    handle = connected(handle_of(record), services, record=record)
    handle._session.project = project
    return handle
