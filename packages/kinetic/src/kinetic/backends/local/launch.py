"""Start a job: its folder, its FIFOs, the runner's file, the detached supervisor."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Final

import kinetic
import kinetic_payload
from kinetic.backends.backend import Environment, Launch
from kinetic.backends.local.emulation import merge, shape_of
from kinetic.backends.local.supervisor.spec import (
    ATTEMPT,
    COORDINATOR,
    HOST,
    KEY,
    LIFELINE,
    WORKSPACE,
    SupervisorSpec,
)
from kinetic.home.collection import keep
from kinetic.home.detached import base_environment
from kinetic.home.liveness import Pipes
from kinetic.home.paths import Home, JobFolder
from kinetic.home.queue import Start, turn
from kinetic.interrupts import Uninterrupted
from kinetic.jobs.runner import runner_command, runner_environment
from kinetic_payload.files.private import (
    make_folder,
    make_new_folder,
    open_private,
    others_may_write,
    read_private,
    write_private,
)
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import REPORT_SECONDS, RUNNER_NAME, Env, Flag, JobObjects
from kinetic_payload.stores.store import Store
from kinetic_runner.bundle import bundle_digest

_START: Final = (
    "import sys; sys.path += sys.argv[5:]; package = type(sys)('kinetic'); "
    "package.__path__ = [sys.argv[5] + '/kinetic']; sys.modules['kinetic'] = package; "
    "from kinetic.backends.local.supervisor.main import main; main()"
)
"""Arguments: three descriptors of FIFOs, the job's id (shown by `ps`) and folders to import from.

`kinetic/__init__.py` is left out: it takes longer to import than all the rest.
"""


@frozen()
class LocalEnvironment(Environment):
    """An interpreter on this machine."""

    interpreter: str
    """The Python that runs the function."""
    bundle: bytes = field(repr=False)
    """The runner as one file."""
    keep_awake: tuple[str, ...] = ()
    """Command that, with a process id appended, keeps this machine awake until that process ends."""


def local_environment(launch: Launch) -> LocalEnvironment:
    """Return the environment of *launch*, which this backend has prepared."""
    assert isinstance(launch.environment, LocalEnvironment)
    return launch.environment


class Staged:
    """A folder that is to become a job's folder, with open FIFOs in it.

    From `open` to `close` clients see the job as about to start, unless this process dies.
    `start_supervisor` renames the folder; otherwise `close` removes it.
    """

    def __init__(self, home: Home, job_id: str) -> None:
        self._home = home
        self.folder = JobFolder(f"{home.jobs}/.{job_id}.{os.urandom(4).hex()}")
        self.pipes: Pipes | None = None
        self.started = False
        """Whether the supervisor was started."""

    def open(self) -> None:
        """Make the folder and the FIFOs; also after a failure, `close` removes them.

        Raises:
            OSError: They could not be created.
        """
        make_folder(self._home.jobs)
        make_new_folder(self.folder.path)
        self.pipes = Pipes(self.folder)

    def close(self) -> None:
        """Close the FIFOs; remove the folder unless the job was started."""
        if self.pipes is not None:
            self.pipes.close()
        shutil.rmtree(self.folder.path, ignore_errors=True)


def start_supervisor(
    launch: Launch,
    store: Store,
    home: Home,
    environment: Mapping[str, str],
    place: Staged,
    *,
    report_seconds: float = REPORT_SECONDS,
    limit: int | None = None,
) -> None:
    """Start the job of *launch* in *place*; *environment* is added to its processes' own variables.

    If *limit* jobs run, it waits for its turn.

    After an interrupt the job is either not started or started completely: `place.started` tells which.

    Raises:
        FileExistsError: The job was started before.
        OSError: The supervisor could not be started.
    """
    record = launch.record
    folder = home.job(record.job_id)
    bundle = ensure_bundle(home, local_environment(launch).bundle)
    spec = spec_of(launch, store, home, bundle, environment, report_seconds=report_seconds)
    environments, interpreter = Path(home.environments), Path(local_environment(launch).interpreter)
    inside = interpreter.is_relative_to(environments)
    uses = {
        "bundle": Path(bundle).parent.name,
        "environment": interpreter.relative_to(environments).parts[0] if inside else None,
        "store": str(store.location),
    }
    write_private(place.folder.uses, json.dumps(uses).encode())
    assert place.pipes is not None
    start = _start_of(spec)
    with Uninterrupted(), turn(home, record.job_id, limit) as waits:
        if waits:
            start.write(place.folder.waiting, spec.encode())
        try:
            # The job's folder appears with open FIFOs in it, so clients can always decide its state.
            os.rename(place.folder.path, folder.path)  # noqa: PTH104
        except OSError as error:
            if os.path.exists(folder.path):  # noqa: PTH110
                raise FileExistsError(f"Job {record.job_id} was started before.") from error
            raise
        try:
            if waits:
                place.pipes.close()
                os.unlink(folder.alive)  # noqa: PTH108 - a fork of this process may hold it
            else:
                spec_fd = _unnamed_file(folder, spec.encode())
                try:
                    start.run(folder, place.pipes, spec_fd)
                finally:
                    os.close(spec_fd)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        place.started = True


def ensure_bundle(home: Home, bundle: bytes) -> str:
    """Return the path of the runner, written once for all jobs that use the same one.

    An existing file is compared: after a power cut it may be empty.
    """
    digest = bundle_digest(bundle)
    folder = Path(home.bundle(digest))
    path = folder / RUNNER_NAME
    if not keep(home, folder):
        make_folder(folder)
    if others_may_write(folder.stat()):
        raise PermissionError(errno.EPERM, "Another user may write to it", str(folder))
    with suppress(OSError):
        seen = path.stat()
        if _digest_of(path, (seen.st_ino, seen.st_size, seen.st_ctime_ns)) == digest:
            return str(path)
    write_private(path, bundle, durable=True)
    return str(path)


@lru_cache(1)
def _digest_of(path: Path, stamp: tuple[int, ...]) -> str:  # noqa: ARG001 - part of the key
    """Return the digest of the file *path*; it is read again only when its *stamp* has changed."""
    return bundle_digest(read_private(path))


def spec_of(
    launch: Launch,
    store: Store,
    home: Home,
    bundle: str,
    environment: Mapping[str, str],
    *,
    report_seconds: float = REPORT_SECONDS,
) -> SupervisorSpec:
    """Return the supervisor's start-up spec for *launch*."""
    record = launch.record
    names = JobObjects(record.job_id)
    folder_store = store.location.kind == "folder"
    variables = runner_environment(record, store.location)
    batch = launch.batch
    # A worker claims the next attempt of each input, and counts as one host.
    kept = home.job(record.job_id).pending_uploads
    own = [] if batch else [Flag.ATTEMPT, ATTEMPT, Flag.PENDING_UPLOADS, kept]
    shape = shape_of(launch.request.accelerator, launch.request.semantics).environment
    return SupervisorSpec(
        home=home.path,
        job_id=record.job_id,
        store=str(store.location),
        outcome_file=f"{store.location}/{names.outcome}" if folder_store else None,
        hosts=record.hosts,
        retries=record.retries,
        workers=list(launch.workers),
        at_once=batch.max_concurrent if batch else 1,
        per_worker=batch.per_worker if batch else 1,
        grace=launch.grace,
        memory_limit=launch.request.memory,
        command=[
            *runner_command(
                launch,
                store.location,
                python=local_environment(launch).interpreter,
                bundle=bundle,
                workspace=WORKSPACE,
            ),
            *(*own, Flag.LIFELINE, LIFELINE, Flag.GRACE, str(launch.grace)),
            *(Flag.REPORT_SECONDS, str(report_seconds)),
        ],
        environment={
            **environment,
            Env.OUTPUT_DIR: variables.pop(Env.OUTPUT_DIR),
            **merge(shape, launch.request.captured_env),
            **variables,
            (Env.BATCH_WORKER if batch else Env.HOST_INDEX): HOST,
            Env.HOME: home.path,
            **({Env.COORDINATOR: COORDINATOR} if record.hosts > 1 else {}),
            **({Env.SIGNING_KEY: KEY} if launch.signing_key is not None else {}),
        },
        mark=f"{Env.JOB_ID}={record.job_id}",
        signing_key=launch.signing_key.hex() if launch.signing_key is not None else "",
        keep_awake=list(local_environment(launch).keep_awake),
        bundle=bundle,
        report_seconds=report_seconds,
    )


def _start_of(spec: SupervisorSpec) -> Start:
    from importlib.util import find_spec

    output_dir = spec.environment[Env.OUTPUT_DIR]
    if "://" in output_dir:
        pass  # A bucket.
    elif output_dir.startswith((f"{spec.home}/", f"{spec.store}/")):
        make_folder(output_dir)
    else:  # The user's own folder: its parents get the modes of the user's umask.
        Path(output_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    # Which modules a supervisor imports must not depend on the user's site, on the environment or on the
    # working directory; and without `site` it starts 3 ms earlier.
    psutil = find_spec("psutil")
    files = [kinetic.__file__, kinetic_payload.__file__, psutil.origin if psutil else None]
    paths = list(dict.fromkeys(str(Path(file).parent.parent) for file in files if file))
    environment = base_environment(spec.environment)
    if spec.outcome_file is None:  # The store is a bucket.
        from kinetic.backends.local.bucket_access import client_folders
        from kinetic.home.detached import bucket_environment

        paths += [folder for folder in client_folders() if folder not in paths]
        environment |= bucket_environment(spec.environment)
    head = [sys.executable, "-I", "-S", "-c", _START]
    return Start(head, [spec.job_id, *paths], environment)


def _unnamed_file(folder: JobFolder, data: bytes) -> int:
    """Return a descriptor of a file without a name that holds *data*."""
    path = f"{folder.path}/.spec"
    fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    os.unlink(path)  # noqa: PTH108
    with open(fd, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
