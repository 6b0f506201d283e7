"""Make the call of a past job once more on this machine: as a local job, or in the foreground for a debugger."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from kinetic.backends.backend import Environment, Launch
from kinetic.backends.registry import LOCAL, entry_of
from kinetic.data import Data
from kinetic.errors import IntegrityError, InvalidRequestError
from kinetic.jobs.services import Services, connect, local_store_location
from kinetic.names import job_id_of
from kinetic.settings.home import make_home
from kinetic.settings.settings import Settings, environment, working_folder
from kinetic.submit.options import check_options
from kinetic.submit.request import request_of
from kinetic.submit.submit import start_call
from kinetic.submit.warnings import Notices
from kinetic.user_warnings import warn_once
from kinetic_k8s.accelerators import parse_accelerator
from kinetic_payload.calls.call import read_header
from kinetic_payload.errors import ObjectNotFoundError
from kinetic_payload.layout import (
    JobObjects,
    data_marker,
    data_prefix,
    is_digest,
    is_job_id,
    title_of,
)
from kinetic_payload.project.context import stored_context
from kinetic_payload.stores.store import ABSENT, Location, Store
from kinetic_payload.threads import Executor, Future

if TYPE_CHECKING:
    from kinetic.backends.local.backend import LocalBackend
    from kinetic.console import Console
    from kinetic.jobs.handle import JobHandle


def replay(handle: JobHandle) -> JobHandle:
    """Start the call of *handle*'s job as a new local job; see `JobHandle.replay`."""
    return PastCall(handle).submit()


class PastCall:
    """The call of a past job, and the request for a local job that makes it again.

    Nothing is unpickled in this process. The record is verified here, the payload when it is copied, and both payload
    and project once more by the runner.

    Raises:
        InvalidRequestError: The job cannot run here; the message says why.
    """

    project = None
    """It ships no project of this machine, but that of the past job."""

    def __init__(self, handle: JobHandle) -> None:
        title, self._record = title_of(handle.job_id), handle._record
        record = self._record
        if record.group_id is not None or not is_job_id(record.job_id):
            raise InvalidRequestError(
                f"{title} belongs to a batch, whose inputs are stored together: it cannot be replayed.",
                hint="Call the function itself with that input: @kinetic.run(..., backend='local').",
            )
        handle._verify()
        self._source = handle._services.store
        self.payload_digest, self.context_digest = record.payload_digest, record.context_digest
        names = JobObjects(record.job_id)
        try:
            with self._source.reader(names.payload) as stream:
                header = read_header(stream)
        except ObjectNotFoundError as error:
            raise _removed_error(title, "call") from error
        if self.context_digest and not stored_context(self._source, self.context_digest):
            raise _removed_error(title, "project")
        here = "{}.{}".format(*sys.version_info)
        if header.python.split(".")[:2] != here.split("."):
            raise InvalidRequestError(
                f"{title} was submitted with Python {header.python}, and this is Python {here}: what one of them pickled, "
                "the other one may not run.",
                hint=f"Run this command in an environment with Python {'.'.join(header.python.split('.')[:2])}.",
            )
        self.refs = header.data
        mounted = [ref.source for ref in self.refs if ref.fuse and ref.local_path is None]
        if mounted:
            raise InvalidRequestError(
                f"{title} reads data that only a cluster can mount (fuse=True): {', '.join(mounted)}",
                hint="Submit it without fuse=True; then the data is copied.",
            )
        semantics = entry_of(record.backend).semantics_for(parse_accelerator(record.accelerator))
        options = check_options(
            accelerator=record.accelerator,
            backend=f"{LOCAL}-{semantics}",
            capture_env_vars=[*record.captured_env],
            volumes={ref.mount: Data(ref.source) for ref in self.refs if ref.mount},
        )
        variables = environment()
        missing = ", ".join(name for name in record.captured_env if name not in variables)
        note = f"{title} had captured environment variables, of which only the names are kept. Not set here: {missing}"
        settings = Settings.from_environment(**options.overrides)
        self.request = replace(
            request_of(options, replay, settings, environ=variables, cwd=working_folder()),
            function_name=record.func_name,
            output_dir=None,
            notes=(note,) if missing else (),
        )
        self._home = Path(settings.home.value)
        self._target: Store = self._source

    def submit(
        self, *_call: Any, console: Console | None = None, started: list[JobHandle] | None = None
    ) -> JobHandle:
        """Start the local job, as `submit` does, and return its handle."""
        services = self._services(local_store_location(self._home), Notices.to(console))
        make_home(str(self._home))
        with Executor(1) as executor:
            checked = Future[None](executor)
            checked.set_result(None)
            return start_call(
                self.request,
                services,
                services,
                self,
                checked,
                executor.submit(lambda: self._environment(services)),
                executor,
                [] if started is None else started,
                time.time,
                None,
                settings=self._record.settings or {},
            )

    def debug(self) -> int:
        """Make the call in the foreground, and debug the exception that it raises; return the exit code.

        Its store, its working folder and its outputs are temporary.
        """
        with TemporaryDirectory(prefix="kinetic-replay-") as folder:
            place = Location("folder", f"{folder}/store")
            services = self._services(place, Notices.to(None))
            make_home(str(self._home))
            accelerator = self.request.accelerator
            if self.request.semantics == "gke" and accelerator.hosts > 1:
                raise InvalidRequestError(
                    f"{title_of(self._record.job_id)} runs on {accelerator.hosts} hosts, and a debugger can stop only one.",
                    hint="Replay it without --pdb.",
                )
            now, name = datetime.now(UTC), self.request.function_name
            job_id = job_id_of(accelerator.slug, name, now, secrets.token_hex(4)[:7])
            self.upload(job_id)
            prepared = self._environment(services)
            record = replace(
                self._record,
                job_id=job_id,
                backend=self.request.backend,
                bucket_name=str(place),
                image_uri=prepared.image,
                environment_digest=None,
                hosts=1,
                retries=0,
                timeout=None,
                debug=False,
                output_dir=None,
                workload=None,
            )
            launch = Launch(
                record=record,
                record_digest="",
                request=self.request,
                environment=prepared,
                data=self.refs,
            )
            backend = cast("LocalBackend", services.backend)
            command, variables = backend.foreground(launch, f"{folder}/workspace")
            process = subprocess.Popen(command, env=variables)
            # Ctrl-C is for the debugger.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                return process.wait()
            finally:
                signal.signal(signal.SIGINT, before)

    def _services(self, place: Location, notices: Notices) -> Services:
        request = self.request
        services = connect(request.backend, request.target, place, request.settings)
        warn_once(notices.warn, *request.notes, *services.backend.check(request))
        self._target = services.store
        return services

    def _environment(self, services: Services) -> Environment:
        """Return the isolated environment of the past job if this machine has it, else this interpreter."""
        record = self._record
        own = record.keeper is not None and record.keeper.home == str(self._home)
        if not (own and record.image_uri.startswith("environment:")):
            record = replace(record, image_uri=f"python:{sys.executable}", keeper=None)
        return services.backend.environment_of(record, self.request)

    def upload(
        self,
        job_id: str,
        writing: Callable[[str], AbstractContextManager[object]] = nullcontext,
        /,
    ) -> None:
        """Copy the call, the project and its data, unless the store has them.

        Raises:
            IntegrityError: The call was changed in the store.
        """
        past, name = JobObjects(self._record.job_id).payload, JobObjects(job_id).payload
        with (
            writing(name),
            self._source.reader(past) as stream,
            self._target.writer(name, if_generation=ABSENT) as copy,
        ):
            found = sha256()
            while piece := stream.read(1 << 20):
                found.update(piece)
                copy.write(piece)
            if found.hexdigest() != self.payload_digest:
                raise IntegrityError(
                    f"The call of {self._record.job_id} is not the one that was submitted.",
                    hint="It was changed in the store. Submit the job again.",
                )
        if self._target.location == self._source.location:
            return
        for each in self._shared():
            if self._target.stat(each) is None:
                with self._source.reader(each) as stream, self._target.writer(each) as copy:
                    while piece := stream.read(1 << 20):
                        copy.write(piece)

    def _shared(self) -> Iterator[str]:
        """Iterate over the objects of the project and the uploaded data; markers come last."""
        if self.context_digest is not None:
            yield from stored_context(self._source, self.context_digest)
        for digest in dict.fromkeys(ref.digest for ref in self.refs):
            if digest is not None and is_digest(digest):
                yield from (info.name for info in self._source.list(data_prefix(digest)))
                yield data_marker(digest)


def _removed_error(title: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"The {what} of {title[0].lower()}{title[1:]} was removed, so it cannot be replayed.",
        hint="A job is cleaned up when its value is collected; result(cleanup=False) keeps it. Submit it again.",
    )
