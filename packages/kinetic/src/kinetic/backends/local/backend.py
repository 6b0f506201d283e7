"""The backend `local`: jobs as detached processes on this machine."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kinetic.backends.backend import (
    Environment,
    Explanation,
    Launch,
    Listed,
    LogLine,
    Observation,
    Watch,
    never,
)
from kinetic.backends.local.observation import (
    NEVER_STARTED,
    Unreachable,
    has_begun,
    home_of,
    is_there,
    is_waiting,
    keeper_of,
    observe_folder,
    trouble_of,
)
from kinetic.backends.local.supervisor.state import read_state
from kinetic.backends.local.watch import FolderEvents, JobEvents, LocalWatch, StoreEvents
from kinetic.backends.registry import LOCAL
from kinetic.errors import JobError, SubmitError
from kinetic.home.liveness import (
    is_alive,
    is_announced,
    is_reporting,
    request_cancel,
    wait_for_death,
    wait_for_end,
    was_announced,
)
from kinetic.home.paths import Home, JobFolder
from kinetic.home.queue import ensure_starter, why_waiting, withdraw
from kinetic.job_status import JobStatus
from kinetic.jobs.pending import note_reasons
from kinetic.jobs.services import Services, key_signer_of, open_at
from kinetic.user_warnings import warn_caller, warn_once
from kinetic.waiting import Deadline, sleep
from kinetic_payload.files.private import make_folder
from kinetic_payload.layout import REPORT_SECONDS, Env, title_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.outages import OutageLimit, changed_copy
from kinetic_payload.stores.store import Store

if TYPE_CHECKING:
    from kinetic.backends.local.launch import Staged
    from kinetic.backends.local.other_homes import OtherHome
    from kinetic.data import Data
    from kinetic.settings.settings import Settings
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic.target import Target
    from kinetic_payload.stores.store import Location

log = logging.getLogger("kinetic")

_NOTHING: Final[Mapping[str, str]] = {}
_FOREGROUND: Final = (
    "import sys; sys.path += [sys.argv[1], sys.argv[1] + '/light']; "
    "from kinetic_runner.child.foreground import main; main()"
)
"""Arguments: the bundle, and the task."""
_CLEANUP_SECONDS: Final = 5.0
"""Seconds that a supervisor may take to end after it wrote the outcome."""
_TIME_AND_SUFFIX: Final = len("20260101-000000-0000000")
"""Characters at the end of a job's id: the time of its submit, and a suffix."""


def connect(target: Target, location: Location, settings: Settings) -> Services:  # noqa: ARG001
    """Return the services of jobs on this machine.

    If the store is a bucket, their records are signed with the key in `KINETIC_HOME`.
    """
    from kinetic.settings.keys import KeyFile

    home = Path(settings.home.value)
    store = open_at(location)
    key_signer = key_signer_of(location, KeyFile(home))
    backend = LocalBackend(home, store, verify=(key_signer or UNSIGNED).verify)
    return Services(store, backend, key_signer=key_signer)


class LocalBackend:
    """Runs jobs below *home* with their objects in *store*.

    *environment* is added to the variables of every job, for instance for the shape of an emulated
    slice; *inherited* is the environment from which jobs get a small base set, by default this
    process's.

    The store may also hold jobs of other homes. On this machine they are observed in those homes; jobs of other
    machines by their objects in the store, which show their logs and how they ended.

    *verify* raises `SignatureError` if an object is not signed with the key of this home. A supervisor tries
    for *report_seconds* to store the end of its job; then unstored results stay in the job's folder.
    """

    name = LOCAL

    def __init__(
        self,
        home: Path,
        store: Store,
        *,
        environment: Mapping[str, str] = _NOTHING,
        inherited: Mapping[str, str] | None = None,
        report_seconds: float = REPORT_SECONDS,
        verify: Callable[[bytes, str], None] = UNSIGNED.verify,
    ) -> None:
        if sys.platform == "win32":
            raise SubmitError(
                "Local jobs need Linux or macOS.", hint="On Windows, use Kinetic inside WSL."
            )
        self._home = Home(str(home.expanduser().absolute()))
        self._store = store
        self._environment = environment
        self._inherited = os.environ if inherited is None else inherited  # noqa: TID251
        self._report_seconds = report_seconds
        self._verify = verify
        self._announced: dict[str, Staged] = {}
        """By job id, until the job is started or removed."""
        self._in_bucket = store.location.kind == "gs"

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same backend for the calls of one operation, which share *limit*."""
        return changed_copy(self, _store=self._store.limited(limit))

    def check(self, request: JobRequest, data: Data | None = None) -> Sequence[str]:
        """Refuse a request that needs containers, a slice that is too large, or something that is missing here.

        Jobs on this machine can use all data that exists.

        Raises:
            InvalidRequestError: The hint says what to use instead.
        """
        from kinetic.backends.local.checks import check_request

        if data is None:
            check_request(request, self._store.location)
        return ()

    def environment(self, request: JobRequest, project: Packaging) -> Environment:
        """Return the interpreter of this process, or the Python of an isolated environment."""
        if request.image.mode == "default":
            return self._environment_with(f"python:{sys.executable}", sys.executable, request)
        from kinetic.home.environments import ensure_environment

        found = ensure_environment(
            project.plan.script or project.plan.base,
            project=project.plan.root,
            home=Path(self._home.path),
            report=project.notices.step,
            bucket=self._in_bucket or project.reads_buckets.result(),
            refresh=request.settings.rebuild.value,
            checked=lambda: project.checked.set_result(None),
        )
        warn_once(project.notices.warn, *found.notes)
        return self._environment_with(f"environment:{found.digest}", str(found.python), request)

    def environment_of(self, record: JobRecord, request: JobRequest) -> Environment:
        """Return the interpreter or the isolated environment of the batch that has *record*."""
        if record.keeper is not None and record.keeper.home != self._home.path:
            raise SubmitError(
                f"The workers of {record.job_id} belong to {record.keeper.home} on {record.keeper.machine}.",
                hint="Start them there, with that KINETIC_HOME.",
            )
        kind, _, name = record.image_uri.partition(":")
        folder = Path(self._home.environment(name), "bin", "python")
        python = name if kind == "python" else str(folder)
        return self._environment_with(record.image_uri, python, request)

    def _environment_with(self, name: str, python: str, request: JobRequest) -> Environment:
        from kinetic.backends.local.launch import LocalEnvironment
        from kinetic.backends.local.supervisor.power import awake_command
        from kinetic.jobs.runner import runner_bundle

        bundle = runner_bundle(Path(self._home.path))
        awake = awake_command(allow_sleep=request.settings.allow_sleep.value)
        return LocalEnvironment(name, python, bundle, awake)

    @contextmanager
    def announced(self, record: JobRecord) -> Iterator[JobRecord]:
        """Show the job as pending within the block, while this process lives.

        Yield the record with the name of this home, in which the job's folder will be. If the beginning or
        the end of the block is interrupted, call `stop(remove=True)`.

        Raises:
            SubmitError: The home cannot be created.
        """
        from kinetic.backends.local.launch import Staged

        place = self._announced[record.job_id] = Staged(self._home, record.job_id)
        try:
            with self._translated(record):
                make_folder(self._home.path)
                place.open()
            yield replace(record, project=LOCAL, keeper=keeper_of(self._home))
        finally:
            place.close()
            if place.started:
                del self._announced[record.job_id]

    def start(self, launch: Launch) -> None:
        """Start the job's supervisor, detached from this process and its terminal.

        Raises:
            SubmitError: The job could not be started; nothing of it stays behind.
        """
        from kinetic.backends.local.launch import Staged, local_environment, start_supervisor
        from kinetic.home.collection import is_due, start_collection

        interpreter = local_environment(launch).interpreter
        # If the system can, check with the effective user id, because that will start the interpreter.
        effective = os.access in os.supports_effective_ids
        if not os.access(interpreter, os.X_OK, effective_ids=effective):
            raise SubmitError(
                f"The Python {interpreter} is missing or not executable.",
                hint="Was the environment of this process moved or removed? Start the process again.",
            )
        environment = self._variables(launch)
        if self._in_bucket:
            from kinetic.backends.local.bucket_access import refuse_without_client

            refuse_without_client(interpreter, str(self._store.location))
        job_id = launch.record.job_id
        with ExitStack() as stack, self._translated(launch.record):
            place = self._announced.get(job_id)
            if place is None:
                place = Staged(self._home, job_id)
                stack.callback(place.close)
                place.open()
            start_supervisor(
                launch,
                self._store,
                self._home,
                environment,
                place,
                report_seconds=self._report_seconds,
                # A job may wait for one that it submits, so that one does not wait for its place.
                limit=None
                if self._inherited.get(Env.JOB_ID)
                else int(launch.request.settings.local_jobs.value)
                or max(8, 4 * (os.cpu_count() or 1)),
            )
        now = time.time()
        if launch.batch is None and is_waiting(self._home.job(job_id)):
            note_reasons(self._store, job_id, [(why_waiting(self._home, job_id), now, now)])
        try:
            if is_due(self._home, now):
                start_collection(self._home, self._store, environment)
        except OSError as error:
            log.info("Old files could not be removed today: %s", error)

    def foreground(self, launch: Launch, workspace: str) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a process that makes the call of *launch* below *workspace*.

        It has this process's terminal, and a debugger for the exception of the function.
        """
        from kinetic.backends.local.launch import ensure_bundle, local_environment, spec_of
        from kinetic_runner.command_line import Arguments
        from kinetic_runner.task import Task

        prepared, record = local_environment(launch), launch.record
        bundle = ensure_bundle(self._home, prepared.bundle)
        spec = spec_of(launch, self._store, self._home, bundle, self._variables(launch))
        _, environment = spec.runner(
            attempt=1, host=0, workspace=workspace, lifeline=-1, coordinator=""
        )
        arguments = Arguments(
            store=str(self._store.location),
            job=record.job_id,
            record_digest=launch.record_digest,
            workspace=workspace,
        )
        task = Task(arguments=arguments, record=record, attempt=1, host=0).encode()
        terminal = {k: v for k, v in os.environ.items() if k == "TERM"}  # noqa: TID251 - for its keys
        return [prepared.interpreter, "-P", "-c", _FOREGROUND, bundle, task], environment | terminal

    def _variables(self, launch: Launch) -> dict[str, str]:
        """Return the part of this process's environment that the processes of a job get."""
        from kinetic.home.detached import base_environment, bucket_environment

        # Only variables that any program needs; Kinetic's own settings are not among them.
        found = {**base_environment(self._inherited), **self._environment}
        if self._in_bucket or any(ref.kind == "gcs" for ref in launch.data):
            found |= bucket_environment(self._inherited)
        return found

    @contextmanager
    def _translated(self, record: JobRecord) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = (
                "Raise the limit of open files: ulimit -n 1024"
                if error.errno == errno.EMFILE
                else f"It needs free space and write permission in KINETIC_HOME, which is {self._home.path}."
            )
            raise SubmitError(
                f"{title_of(record.job_id)} could not be started on this machine: {error}.",
                hint=hint,
            ) from error

    def observe(self, record: JobRecord) -> Observation:
        """Observe the job once, by its supervisor and the state that the supervisor wrote."""
        home = self._home_of(record)
        if not isinstance(home, Home):
            return home.observe(record)
        folder = home.job(record.job_id)
        seen = observe_folder(home, record.job_id)
        if seen is not None:
            if seen.status is JobStatus.PENDING and is_waiting(folder):
                ensure_starter(home)
            return seen
        if is_announced(home, record.job_id):
            return Observation(JobStatus.PENDING, "It is about to start.")
        if is_there(folder):  # The job started between the two checks.
            return self.observe(record)
        never_started = was_announced(home, record.job_id)
        return Observation(JobStatus.NOT_FOUND, NEVER_STARTED if never_started else "")

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:
        """Return the observed reason, preceded by a message if a disk of this machine is full."""
        from kinetic.home.disks import full_disk, needed_by

        undecided = seen.status in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED)
        folder = self._folder(record)
        if not undecided or not isinstance(folder, JobFolder):
            return Explanation(seen.reason)
        full = full_disk(needed_by(self._home, self._store.location))
        if full:
            return Explanation(f"{full} {seen.reason}".strip(), trouble=True)
        trouble = is_waiting(folder) or (
            seen.status is JobStatus.RUNNING and bool(trouble_of(folder))
        )
        return Explanation(seen.reason, trouble=trouble)

    @contextmanager
    def watch(self, records: Sequence[JobRecord]) -> Iterator[Watch]:
        """Watch the supervisors of the jobs, and outcomes that other processes may write."""
        yield LocalWatch([self._events_of(record) for record in records])

    def _events_of(self, record: JobRecord) -> Callable[[], JobEvents]:
        """Return a function that is called at each wait, and returns the events of the job.

        They change when the job's folder appears.
        """
        last: JobEvents | None = None

        def events() -> JobEvents:
            nonlocal last
            home, place = self._home_of(record), self._folder(record)
            if isinstance(place, JobFolder):
                assert isinstance(home, Home)
                if not (isinstance(last, FolderEvents) and last.folder.path == place.path):
                    last = FolderEvents(home, record.job_id)
            elif not isinstance(last, StoreEvents):
                last = place.events(record)
            return last

        return events

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt; with *follow*, until the job ends or *stopped*.

        If the job's folder is gone, read the durable log in the store.
        """
        from kinetic.backends.local.log_files import follow_lines, read_lines
        from kinetic.jobs.stored_logs import latest_lines

        folder = self._folder(record)
        if not isinstance(folder, JobFolder):
            yield from folder.log_lines(record, follow=follow, tail=tail, stopped=stopped)
        elif not is_there(folder):
            yield from latest_lines(self._store, record, self._verify, tail=tail)
        elif not follow:
            yield from read_lines(folder, record.hosts, tail=tail)
        else:

            def ended() -> bool:
                alive = is_alive(folder) or is_reporting(folder)
                state = read_state(folder.state)
                return (
                    stopped() or not alive or (state is not None and state["status"] != "running")
                )

            yield from follow_lines(
                folder,
                record.hosts,
                tail=tail,
                ended=ended,
                pause=lambda seconds: wait_for_end(folder, seconds),
            )

    def forward(self, record: JobRecord) -> None:
        """Return None: the job listens on this machine.

        Raises:
            JobError: It does not run on this machine.
        """
        folder = self._folder(record)
        if not (
            isinstance(folder, JobFolder)
            and (is_alive(folder) or is_reporting(folder) or is_waiting(folder))
        ):
            raise JobError(
                f"Job {record.job_id} does not run on this machine, and its debugger listens only where "
                "it runs.",
                hint="Attach to it there.",
                job_id=record.job_id,
            )

    def execute(
        self,
        record: JobRecord,
        command: Sequence[str],
        *,
        host: int,
        terminal: bool,  # noqa: ARG002 - a child has it anyway
    ) -> int:
        """Run *command* as a process of this machine; it ends with the job."""
        import signal
        import subprocess

        import psutil

        from kinetic_payload.layout import RUNNER_NAME, Env
        from kinetic_payload.processes import kill_marked, marked
        from kinetic_runner.parent.child_process import MARK, new_mark

        children = []
        pids = marked(f"{Env.JOB_ID}={record.job_id}")
        for pid in pids:
            with suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                variables = process.environ()
                # Not a runner: its parent is the supervisor, which is not marked.
                is_child = process.ppid() in pids and any(
                    word.endswith(f"/{RUNNER_NAME}") for word in process.cmdline()
                )
                if is_child and variables.get(Env.HOST_INDEX) == str(host):
                    children.append((process, process.cwd(), variables))
        if not children:
            raise JobError(
                f"Host {host} of job {record.job_id} does not run on this machine now.",
                hint=f"Where it runs: kinetic jobs status {record.job_id}",
                job_id=record.job_id,
            )
        # Processes that the function has started look the same.
        function, folder, variables = min(children, key=lambda child: child[0].create_time())
        inherited = {k: v for k, v in os.environ.items() if k == "TERM"}  # noqa: TID251 - for its keys
        try:
            mark = new_mark()
            variables = {**inherited, **variables, MARK: mark}
            started = subprocess.Popen(command, cwd=folder, env=variables)
        except OSError as error:
            raise JobError(
                f"{command[0]!r} could not be started in job {record.job_id}: {error.strerror}.",
                hint="The job's PATH is that of the process which submitted it.",
                job_id=record.job_id,
            ) from error
        # Ctrl-C is for the command, which shares the terminal.
        before = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    code = started.wait(1.0)
                    break
                if not function.is_running():
                    started.send_signal(signal.SIGHUP)  # A shell leaves the terminal as it was.
                    with suppress(subprocess.TimeoutExpired):
                        started.wait(1.0)
                    kill_marked(f"{MARK}={mark}")
        finally:
            signal.signal(signal.SIGINT, before)
        return code if code >= 0 else 128 - code

    def stop(
        self,
        record: JobRecord,
        *,
        timeout: float,
        poll_interval: float,
        remove: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Stop all processes of the job gracefully, and return when they are gone.

        With *remove*, also remove its folder. A job on another machine has no folder here: refuse unless it
        has ended. The processes are the user's own, so a *dry_run* raises nothing.

        Raises:
            JobError: The job still runs after *timeout* seconds, or cannot be stopped from here.
        """
        if dry_run:
            return
        if remove:
            place = self._announced.pop(record.job_id, None)
            if place is not None:
                place.close()
                if not place.started:
                    return  # Only this process could have started it.
        folder = self._folder(record)
        if not isinstance(folder, JobFolder):
            folder.refuse_to_stop(record)
        elif remove:
            self._remove(record, folder, timeout, poll_interval)
        else:
            self._await_end(record, folder, timeout, poll_interval)

    def _remove(
        self, record: JobRecord, folder: JobFolder, timeout: float, poll_interval: float
    ) -> None:
        from kinetic.home.removal import put_aside, remove_tree
        from kinetic.jobs.outcome import stored_outcome
        from kinetic.jobs.records import kept_hint
        from kinetic_payload.records.pending_uploads import PendingUploads

        decided = stored_outcome(self._store, record.job_id, self._verify) is not None
        if decided:
            # The job has ended, and its supervisor takes a moment to clean up: do not cancel it.
            wait_for_death(folder, min(timeout, _CLEANUP_SECONDS))
        self._await_end(record, folder, timeout, poll_interval)
        if PendingUploads(folder.pending_uploads).host_outcomes():
            if not decided:  # The folder holds the only copy.
                raise JobError(
                    f"Job {record.job_id} has ended, and its result is not in the store yet.",
                    hint=kept_hint(record.job_id, folder.pending_uploads),
                    job_id=record.job_id,
                )
            # Another machine cancelled the job.
            warn_caller(
                f"Job {record.job_id} has an outcome already. Its result, which was not stored, is removed "
                "with the job."
            )
        for gone in put_aside(folder.path, in_use=lambda path: is_alive(JobFolder(path))):
            left = remove_tree(gone)
            if left:
                warn_caller(
                    f"{title_of(record.job_id)} was removed, except for files of its function that "
                    f"could not be removed: {'; '.join(left)}. Remove {gone} when you can."
                )

    def tidy(
        self,
        ended: Sequence[JobRecord],
        *,
        cancelled: bool = False,  # noqa: ARG002
        recorded: Set[str] | None = None,
    ) -> None:
        """Kill the processes that supervisors left that were killed, once no runner can report any more.

        Not for a list of all jobs, which would look at each folder once more.
        """
        if recorded is not None:
            return
        for record in ended:
            folder = self._folder(record)
            if isinstance(folder, JobFolder) and not (is_alive(folder) or is_reporting(folder)):
                self._kill_left(record, folder)

    def list(self) -> Iterator[Listed]:
        """Iterate over the jobs that have a folder here, also finished ones, newest first."""
        try:
            with os.scandir(self._home.jobs) as found:
                names = [entry.name for entry in found if entry.is_dir()]
        except FileNotFoundError:
            return
        ensure_starter(self._home)
        jobs = [name for name in names if not name.startswith(".")]  # Other files are ignored.
        for job_id in sorted(jobs, key=lambda name: name[-_TIME_AND_SUFFIX:], reverse=True):
            seen = observe_folder(self._home, job_id)
            if seen is not None:  # Otherwise it was removed meanwhile.
                yield Listed(job_id, seen)

    def _home_of(self, record: JobRecord) -> Home | OtherHome:
        """Return the home in which to look for the job's folder, or an observer of jobs without one."""
        found = home_of(record.keeper, record.job_id, self._home)
        if not isinstance(found, Unreachable):
            return found
        from kinetic.backends.local.other_homes import OtherHome

        assert record.keeper is not None
        return OtherHome(
            self._store, record.keeper, found, verify=self._verify, kill=self._kill_orphans
        )

    def _folder(self, record: JobRecord) -> JobFolder | OtherHome:
        """Return the job's folder, which may be missing, or an observer of jobs without one."""
        home = self._home_of(record)
        return home.job(record.job_id) if isinstance(home, Home) else home

    def _await_end(
        self, record: JobRecord, folder: JobFolder, timeout: float, poll_interval: float
    ) -> None:
        from kinetic.home.detached import reap

        deadline = Deadline(timeout)
        home = self._home_of(record)
        if isinstance(home, Home) and is_waiting(folder):
            withdraw(home, record.job_id)
        while is_alive(folder):
            # Repeated, in case the supervisor has not received an earlier request.
            request_cancel(folder)
            wait_for_death(folder, deadline.at_most(poll_interval))
            if deadline.passed and is_alive(folder):
                raise JobError(
                    f"{title_of(record.job_id)} still runs {timeout:g} s after the request to stop.",
                    hint="Its function may need a longer grace to end; try again.",
                    job_id=record.job_id,
                )
        reap()
        self._kill_left(record, folder)

    def _kill_left(self, record: JobRecord, folder: JobFolder) -> None:
        """Kill the job's processes if its supervisor was killed before it wrote how they ended."""
        state = read_state(folder.state)
        running = has_begun(folder) if state is None else state["status"] == "running"
        if running:
            self._kill_orphans(record)

    def _kill_orphans(self, record: JobRecord) -> None:
        """Kill the processes that a killed supervisor left; its runners end by themselves."""
        from kinetic_payload.processes import kill_marked, kill_tree

        mark = f"{Env.JOB_ID}={record.job_id}"
        kill_tree(lambda: kill_marked(mark), pause=lambda: sleep(0.02))
