"""Start the workers of a batch again: of one whose resource was lost, or for inputs that failed."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from typing import TYPE_CHECKING, Any, Final, cast

from kinetic.backends.backend import Launch
from kinetic.console import is_terminal
from kinetic.errors import InvalidRequestError, JobError, SubmitError
from kinetic.settings.settings import Settings, environment, working_folder
from kinetic.submit.options import check_options
from kinetic.submit.request import JobRequest, request_of
from kinetic_payload.calls.call import read_header
from kinetic_payload.errors import (
    IntegrityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    RecordError,
)
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records.claim import Lease
from kinetic_payload.records.encode import encode, fields_of
from kinetic_payload.stores.store import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinetic.jobs.services import Services
    from kinetic_payload.records.batch import GroupManifest

MANY: Final = 1000
"""Inputs up to which each has a pod of its own, and above which a start on accelerators is confirmed."""
_LEASE_SECONDS: Final = 300.0
"""Seconds after which another process may start the workers, if the one that began to do so was killed."""


def relaunch(
    manifest: GroupManifest, stored: bytes, services: Services, indexes: Sequence[int]
) -> Launch:
    """Prepare to start the workers of the inputs *indexes* again; those that have an outcome are skipped.

    Captured variables are not stored: those of this process are passed on. *stored* are the verified bytes of the
    manifest. Nothing is changed.

    Raises:
        InvalidRequestError: A captured variable is not set here.
        ObjectNotFoundError: The batch was cleaned up.
        IntegrityError: Its call was changed in the store.
        SubmitError: They cannot be started from here.
    """
    record = manifest.job_record
    with services.store.reader(JobObjects(manifest.group_id).payload) as stream:
        if file_digest(cast("Any", stream), "sha256").hexdigest() != record.payload_digest:
            raise IntegrityError(f"The call of {manifest.group_id} was changed in the store.")
        stream.seek(0)
        data = read_header(stream).data
    request = request_again(manifest)
    return Launch(
        record=record,
        record_digest=sha256(stored).hexdigest(),
        request=request,
        environment=services.backend.environment_of(record, request),
        data=data,
        signing_key=None if services.key_signer is None else services.key_signer.key,
        batch=manifest,
        workers=tuple(sorted({index // manifest.per_worker for index in indexes})),
    )


def confirm(request: JobRequest, count: int, *, workers: int, at_once: int) -> None:
    """Ask on a terminal whether to start more than a thousand inputs on accelerators.

    Raises:
        SubmitError: The answer is no.
    """
    small = count <= MANY or request.accelerator.kind == "cpu" or request.on_this_machine
    on_terminal = is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if small or request.settings.assume_yes.value or not on_terminal:
        return
    pods = workers * request.accelerator.hosts
    sys.stderr.write(
        f"{count:,} inputs on {request.accelerator} need {pods:,} pods, for up to {at_once:,} workers at the "
        "same time. Start them? [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SubmitError(
            "The batch was not started.",
            hint="Answer y, or set KINETIC_ASSUME_YES=1 so that it is not asked.",
        )


def start_workers(launch: Launch, services: Services) -> None:
    """Start the workers of *launch* in place of those that were lost.

    Raises:
        SubmitError: They could not be started.
    """
    # What is left of the lost workers has the names of the new ones.
    services.backend.stop(launch.record, timeout=60.0, poll_interval=0.2, remove=True)
    with services.backend.announced(launch.record):
        services.backend.start(launch)


def request_again(manifest: GroupManifest) -> JobRequest:
    """Return the request of a batch, with the settings and the captured variables of this process.

    Raises:
        InvalidRequestError: A captured variable is not set here.
    """
    record = manifest.job_record
    options = check_options(**json.loads(manifest.given))
    target = {
        "project": record.project,
        "zone": record.zone,
        "cluster": record.cluster_name,
        "namespace": record.namespace,
        "backend": record.backend,
    }
    settings = Settings.from_environment(**{**options.overrides, **target})

    def function() -> None: ...

    function.__qualname__ = record.func_name
    request = request_of(options, function, settings, environ=environment(), cwd=working_folder())
    missing = set(record.captured_env) - set(request.captured_env)
    if missing:
        raise InvalidRequestError(
            f"{manifest.group_id} needs these environment variables, which are not set here: "
            f"{', '.join(sorted(missing))}.",
            hint="Their values are not stored. Set them, and call again.",
        )
    return request


class LeaseTakenError(JobError):
    """Another process starts the workers of the batch."""


@contextmanager
def lease(group_id: str, services: Services) -> Iterator[None]:
    """Hold the lease of a batch in the block: only its holder may start workers.

    Raises:
        LeaseTakenError: Another process holds it.
    """
    store, name = services.store, JobObjects(group_id).lease
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    generation = ABSENT
    found = store.stat(name)
    if found is not None:
        written: dict[str, Any] = {}
        with suppress(ObjectNotFoundError, RecordError):
            written = fields_of(read_record(store, name))
        if store.now() - found.updated < _LEASE_SECONDS:
            raise _taken(group_id, str(written.get("holder", "another process")))
        generation = found.generation
    data = encode(Lease(job_id=group_id, holder=holder, seconds=_LEASE_SECONDS))
    try:
        own = store.write(name, data, if_generation=generation)
    except PreconditionFailedError as error:
        raise _taken(group_id, "another process") from error
    try:
        yield
    finally:
        with suppress(PreconditionFailedError):
            store.delete(name, if_generation=own.generation)


def _taken(group_id: str, holder: str) -> LeaseTakenError:
    return LeaseTakenError(
        f"The workers of {group_id} are being started by {holder}.",
        hint=f"Try again in {_LEASE_SECONDS / 60:.0f} minutes, if that process was killed.",
        job_id=group_id,
    )
