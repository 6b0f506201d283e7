"""`FakeServices`: a store and a backend in memory, whose jobs a test controls."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Self

from kinetic.backends.backend import (
    AttemptView,
    Ending,
    Environment,
    Explanation,
    Launch,
    Listed,
    LogLine,
    Observation,
    Watch,
    never,
)
from kinetic.backends.registry import LOCAL
from kinetic.data import Data
from kinetic.errors import JobError, PreconditionFailedError, StoreError, SubmitError
from kinetic.job_status import JobStatus
from kinetic.jobs.handle import JobHandle
from kinetic.jobs.services import Services
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic.settings.settings import resolve
from kinetic.submit.options import check_options
from kinetic.submit.package import Packaging
from kinetic.submit.request import JobRequest, request_of
from kinetic.waiting import Deadline
from kinetic_k8s.cluster.port_forward import PortForward
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import HostOutcome, Phase, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.records.storage import write_once
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ABSENT, ObjectInfo, Store
from kinetic_payload.testing import MemoryStore


class Journal:
    """The calls of a fake, in order: `write j/outcome.json`, `stop j`. Tests can run acts around calls."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._acts: list[tuple[str, bool, Callable[[], object]]] = []
        self._choosing = threading.Lock()

    def before(self, pattern: str, *acts: Callable[[], object]) -> None:
        """Run each of *acts* once, in order, before calls that match *pattern*."""
        self._acts += [(pattern, False, act) for act in acts]

    def after(self, pattern: str, *acts: Callable[[], object]) -> None:
        """Run each of *acts* once, in order, after calls that match *pattern*."""
        self._acts += [(pattern, True, act) for act in acts]

    def refuse(self, pattern: str, error: BaseException) -> None:
        """Raise *error* once, instead of the next call that matches *pattern*."""
        self.before(pattern, raising(error))

    def of(self, *patterns: str) -> list[str]:
        """Return the entries that match one of *patterns*."""
        return [e for e in self.entries if any(fnmatchcase(e, pattern) for pattern in patterns)]

    @contextmanager
    def noting(self, entry: str) -> Iterator[None]:
        """Note the call *entry*, and run the acts before and after it."""
        self.entries.append(entry)
        self._act(entry, after=False)
        yield
        self._act(entry, after=True)

    def _act(self, entry: str, *, after: bool) -> None:
        with self._choosing:
            fitting = (p for p in self._acts if p[1] is after and fnmatchcase(entry, p[0]))
            planned = next(fitting, None)
            if planned is not None:
                self._acts.remove(planned)
        if planned is not None:
            planned[2]()


def raising(error: BaseException) -> Callable[[], object]:
    """Return an act that raises *error*."""

    def act() -> object:
        raise error

    return act


class FakeStore(MemoryStore):
    """A `MemoryStore` with a journal of reads, writes and deletions; like a bucket if it is *remote*."""

    def __init__(self, journal: Journal | None = None, *, remote: bool = False) -> None:
        super().__init__()
        self.journal = journal or Journal()
        self._remote = remote

    @property
    def concurrency(self) -> int:
        return 8 if self._remote else 1

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        with self.journal.noting(f"read {name}"):
            return super().read(name, start=start, end=end)

    @contextmanager
    def reader(self, name: str) -> Iterator[BinaryIO]:
        with self.journal.noting(f"read {name}"), super().reader(name) as stream:
            yield stream

    def write(self, name: str, data: bytes, *, if_generation: int | None = None) -> ObjectInfo:
        with self.journal.noting(f"write {name}"):
            return super().write(name, data, if_generation=if_generation)

    def delete(self, name: str, *, if_generation: int | None = None) -> bool:
        with self.journal.noting(f"delete {name}"):
            return super().delete(name, if_generation=if_generation)


@dataclass
class _Resource:
    launch: Launch
    status: JobStatus = JobStatus.PENDING
    reason: str = ""
    vanished: bool = False


class FakeBackend:
    """A backend whose resources are entries of a dict. Nothing runs; a test sets what a job does."""

    name = "fake"

    def __init__(
        self, store: Store, journal: Journal | None = None, *, key_signer: KeySigner | None = None
    ) -> None:
        self.journal = journal or Journal()
        self._store = store
        self._key_signer = key_signer
        self._announced: set[str] = set()
        self._resources: dict[str, _Resource] = {}
        self._logs: dict[str, list[LogLine]] = {}
        self.changed = threading.Condition()
        self._changes = 0
        self._seen: dict[str, tuple[int, int]] = {}
        """The number of changes, and the generation of the outcome, when each job was last observed."""

    def limited(self, limit: OutageLimit) -> Self:
        """Return this backend: it waits for nothing. Its journal notes the limit."""
        self.journal.entries.append(f"limited {limit.seconds:g}")
        return self

    def check(self, request: JobRequest, data: Data | None = None) -> Sequence[str]:
        """Refuse nothing."""
        self.journal.entries.append("check" if data is None else "check data")
        return ()

    def environment(self, request: JobRequest, project: Packaging) -> Environment:
        """Return an environment in which nothing can run."""
        with self.journal.noting("dependencies"):
            project.checked.set_result(None)
        with self.journal.noting("environment"):
            return Environment("fake:environment")

    def environment_of(self, record: JobRecord, request: JobRequest) -> Environment:
        """Return the environment in which nothing can run."""
        return Environment("fake:environment")

    @contextmanager
    def announced(self, record: JobRecord) -> Iterator[JobRecord]:
        """Report the job as pending within the block."""
        self._announced.add(record.job_id)
        try:
            yield replace(record, project=LOCAL)
        finally:
            self._announced.remove(record.job_id)

    def start(self, launch: Launch) -> None:
        """Make the job's resource; it is pending until `runs` is called.

        Raises:
            SubmitError: The job has one already, or an object that it needs is not in the store.
        """
        record = launch.record
        with self.journal.noting(f"start {record.job_id}"):
            names = JobObjects(record.job_id)
            needed = [names.handle, names.payload]
            if record.context_digest is not None:
                needed.append(context_object(record.context_digest))
            missing = [name for name in needed if self._store.stat(name) is None]
            if missing or record.job_id in self._resources:
                raise SubmitError(f"{record.job_id} cannot start: {missing or 'it did before'}.")
            self._resources[record.job_id] = _Resource(launch)

    def observe(self, record: JobRecord) -> Observation:
        """Observe the job's resource once."""
        with self.journal.noting(f"observe {record.job_id}"):
            self._seen[record.job_id] = self._state_of(record.job_id)
            found = self._resources.get(record.job_id)
            if found is None:
                announced = record.job_id in self._announced
                return Observation(JobStatus.PENDING if announced else JobStatus.NOT_FOUND)
            return self._observation_of(found)

    def _observation_of(self, found: _Resource) -> Observation:
        state = "unknown" if found.vanished else found.status.value.lower()
        attempts = (AttemptView(1, found.launch.record.hosts, state, found.reason),)
        began = found.status is not JobStatus.PENDING
        ended = found.vanished or found.status.terminal
        ending = Ending.VANISHED if ended else Ending.REPORTED
        return Observation(found.status, found.reason, attempts if began else (), ending)

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:
        with self.journal.noting(f"explain {record.job_id}"):
            return Explanation(seen.reason)

    @contextmanager
    def watch(self, records: Sequence[JobRecord]) -> Iterator[Watch]:
        yield _FakeWatch(self, [record.job_id for record in records])

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over the lines that the job printed; with *follow*, until it ends."""
        with self.journal.noting(f"log_lines {record.job_id}"):
            lines = self._logs.get(record.job_id, [])
            seen = 0 if tail is None else max(0, len(lines) - tail)
        while True:
            with self.changed:
                ended = not follow or stopped() or self._ended(record.job_id)
                more = self._logs.get(record.job_id, [])[seen:]
                if not (ended or more):
                    self.changed.wait(1)
            yield from more
            seen += len(more)
            if ended:
                return

    def execute(
        self, record: JobRecord, command: Sequence[str], *, host: int, terminal: bool
    ) -> int:
        """Report what would run."""
        self.journal.entries.append(
            f"execute {record.job_id} {host} {terminal} {' '.join(command)}"
        )
        return 0

    def forward(self, record: JobRecord) -> PortForward | None:
        """Return None: jobs run on this machine.

        Raises:
            JobError: It has ended.
        """
        found = self._resources.get(record.job_id)
        if found is None or found.status.terminal:
            raise JobError(f"Job {record.job_id} does not run.")
        return None

    def stop(
        self,
        record: JobRecord,
        *,
        timeout: float,
        poll_interval: float,
        remove: bool = False,
        dry_run: bool = False,
    ) -> None:
        """End the job unless it has ended; write the outcome `cancelled`, as a supervisor does."""
        if dry_run:
            with self.journal.noting(f"check_stop {record.job_id}"):
                return
        if remove:
            with self.journal.noting(f"remove {record.job_id}"):
                self.stop(record, timeout=timeout, poll_interval=poll_interval)
                self.loses(record.job_id)
            return
        with self.journal.noting(f"stop {record.job_id}"):
            found = self._resources.get(record.job_id)
            if found is not None and not found.status.terminal:
                outcome = Outcome(job_id=record.job_id, status="cancelled", written_by="supervisor")
                with suppress(StoreError):  # A supervisor ends, too, if its store fails.
                    create_outcome(self._store, outcome, self._key_signer)
                self._change(found, JobStatus.FAILED, "It was stopped.")

    def list(self) -> Iterator[Listed]:
        """Iterate over the jobs that have a resource."""
        with self.journal.noting("list"):
            found = sorted(self._resources.items())
        for job_id, resource in found:
            yield Listed(job_id, self._observation_of(resource))

    def tidy(
        self,
        ended: Sequence[JobRecord],
        *,
        cancelled: bool = False,
        recorded: Set[str] | None = None,
    ) -> None:
        """Do nothing: a resource that has ended holds nothing."""

    def launch_of(self, job_id: str) -> Launch:
        return self._resources[job_id].launch

    def runs(self, job_id: str) -> None:
        self._change(self._resources[job_id], JobStatus.RUNNING, "")

    def prints(self, job_id: str, *lines: str, host: int = 0) -> None:
        """Print *lines* as a host of the job."""
        self._logs.setdefault(job_id, []).extend(LogLine(line, host) for line in lines)
        self._notify()

    def returns(self, job_id: str, value: object) -> None:
        """Return *value* from the function: the job succeeds, and its leader reports it."""
        # Look it up first: another thread that waits for the outcome may clean the job up at once.
        found = self._resources[job_id]
        report_value(self._store, job_id, value, key_signer=self._key_signer)
        self._change(found, JobStatus.SUCCEEDED, "")

    def raises(self, job_id: str, error: BaseException) -> None:
        """Raise *error* from the function: the job fails, and its leader reports it."""
        found = self._resources[job_id]
        report_error(self._store, job_id, error, key_signer=self._key_signer)
        self._change(found, JobStatus.FAILED, "")

    def dies(self, job_id: str, reason: str) -> None:
        """End the job without any outcome."""
        found = self._resources[job_id]
        found.vanished = True
        self._change(found, JobStatus.FAILED, reason)

    def loses(self, job_id: str) -> None:
        """Remove the resource, as another process may do."""
        self._resources.pop(job_id, None)
        self._notify()

    def has_news(self, job_ids: Sequence[str]) -> bool:
        """Return whether a job has changed, or got an outcome, since it was observed."""
        return any(self._seen.get(job_id) != self._state_of(job_id) for job_id in job_ids)

    def _state_of(self, job_id: str) -> tuple[int, int]:
        return self._changes, self._outcome(job_id)

    def _outcome(self, job_id: str) -> int:
        found = self._store.stat(JobObjects(job_id).outcome)
        return ABSENT if found is None else found.generation

    def _ended(self, job_id: str) -> bool:
        found = self._resources.get(job_id)
        return found is None or found.status.terminal

    def _change(self, found: _Resource, status: JobStatus, reason: str) -> None:
        found.status, found.reason = status, reason
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self._changes += 1
            self.changed.notify_all()


class _FakeWatch:
    """Waits for changes of jobs, and polls for their outcomes."""

    def __init__(self, backend: FakeBackend, job_ids: Sequence[str]) -> None:
        self._backend = backend
        self._job_ids = job_ids
        self._woken = False

    def wait(self, timeout: float | None) -> None:
        """Return when a job has changed or got an outcome, or after *timeout* seconds."""
        deadline, backend = Deadline(timeout), self._backend
        with backend.journal.noting(f"wait {' '.join(self._job_ids)}"), backend.changed:
            while not (deadline.passed or self._woken or backend.has_news(self._job_ids)):
                backend.changed.wait(deadline.at_most(0.02))
            self._woken = False

    def wake(self) -> None:
        """Make `wait` return at once."""
        with self._backend.changed:
            self._woken = True
            self._backend.changed.notify_all()


@frozen()
class FakeServices(Services):
    """A fake store and a fake backend with one journal."""

    store: FakeStore
    backend: FakeBackend
    journal: Journal

    @classmethod
    def make(cls, *, home: Path | None = None, trusting: bool = False) -> FakeServices:
        """Return services without jobs; with a *home*, like those of a bucket, whose records its key signs."""
        journal = Journal()
        store = FakeStore(journal, remote=home is not None)
        key_signer = None if home is None else KeySigner(KeyFile(home), trusting=lambda: trusting)
        return cls(
            store,
            FakeBackend(store, journal, key_signer=key_signer),
            journal,
            key_signer=key_signer,
        )

    def left(self) -> list[str]:
        """Return the names of all objects, without the summaries of jobs that were cleaned up."""
        return [
            name for name in self.store.names() if not re.fullmatch("logs/[^/]+/outcome.json", name)
        ]

    def job(self, **fields: Any) -> JobRecord:
        """Store and start a job, as submit does; it is pending. *fields* override those of `a_record`."""
        record = a_record(**fields)
        names = JobObjects(record.job_id)
        self.store.write(names.payload, b"")
        data = self.sign(encode(record), names.handle)
        self.store.write(names.handle, data)
        launch = Launch(
            record=record,
            record_digest=hashlib.sha256(data).hexdigest(),
            request=a_request(),
            environment=Environment("fake"),
        )
        self.backend.start(launch)
        self.journal.entries.clear()
        return record


def connected(handle: JobHandle, services: Services) -> JobHandle:
    """Return *handle* as another process rebuilds it, with *services*."""
    found = replace(handle)
    found._session.services = services
    return found


def a_request(**options: Any) -> JobRequest:
    """Return the request of a job on one CPU of this machine; *options* override arguments of `run`."""
    checked = check_options(**{"accelerator": "cpu", "backend": LOCAL, **options})
    settings = resolve(checked.overrides, environ={}, user_home=Path("/"))
    return request_of(checked, a_request, settings, environ={}, cwd=Path("/"))


def a_record(**fields: Any) -> JobRecord:
    """Return the record of a job on one CPU; *fields* override its fields."""
    usual = {
        "job_id": "cpu-f-20260101-000000-abcdef0",
        "backend": "fake",
        "project": "local",
        "cluster_name": "kinetic-cluster",
        "zone": "us-central1-a",
        "namespace": "default",
        "bucket_name": "nowhere",
        "k8s_name": "kn-f-abcdef0",
        "image_uri": "python:python",
        "accelerator": "cpu",
        "func_name": "f",
        "display_name": "f on cpu",
        "created_at": "2026-01-01T00:00:00.000+00:00",
    }
    return JobRecord(**{**usual, **fields})


def create(store: Store, name: str, data: bytes) -> None:
    """Write *data* as *name* unless the object exists."""
    with suppress(PreconditionFailedError):
        store.write(name, data, if_generation=ABSENT)


def create_outcome(store: Store, outcome: Outcome, signer: KeySigner | None) -> None:
    """Write *outcome*, signed by *signer*, unless the job has one."""
    write_once(store, signer or UNSIGNED, JobObjects(outcome.job_id).outcome, encode(outcome))


def report_value(
    store: Store, job_id: str, value: object, *, key_signer: KeySigner | None = None
) -> Outcome:
    """Report that the job's first attempt returned *value*, as the runner does."""
    from kinetic_runner.child.result import ResultStorage, keep_value

    name = JobObjects(job_id).host_value(1, 0)
    kept = keep_value(value, ResultStorage(store=store, name=name))
    return report(store, a_report(job_id, value=kept), key_signer=key_signer)


def report_error(
    store: Store,
    job_id: str,
    error: BaseException,
    *,
    phase: Phase = "call",
    key_signer: KeySigner | None = None,
) -> Outcome:
    """Report that the job's first attempt raised *error*, as the runner does."""
    from kinetic_runner.child.result import ResultStorage, error_info

    name = JobObjects(job_id).host_value(1, 0)
    info = error_info(error, ResultStorage(store=store, name=name))
    failed = a_report(job_id, succeeded=False, reason="exception", phase=phase, exit_code=1)
    failed = replace(failed, error=info, message=f"{info.type}: {info.message}")
    return report(store, failed, key_signer=key_signer)


def a_report(job_id: str, *, value: Pickled | None = None, **more: Any) -> HostOutcome:
    """Return the report of a leader whose first attempt succeeded; *more* overrides its fields."""
    usual: dict[str, Any] = {
        "attempt": 1,
        "host": 0,
        "succeeded": True,
        "reason": "returned",
        "phase": "report",
        "exit_code": 0,
    }
    return HostOutcome(**{**usual, "job_id": job_id, "value": value, **more})


def report(
    store: Store, host: HostOutcome, *, key_signer: KeySigner | None = None, **more: Any
) -> Outcome:
    """Write the report of the *host* that decides, and the outcome with its digest."""
    names = JobObjects(host.job_id)
    name = names.host_outcome(host.attempt, host.host)
    data = (key_signer or UNSIGNED).sign(encode(host), name)
    store.write(name, data)
    usual: dict[str, Any] = {
        "status": "succeeded" if host.succeeded else "failed",
        "attempt": host.attempt,
        "host": host.host,
        "digest": hashlib.sha256(data).hexdigest(),
        "message": host.message,
    }
    outcome = Outcome(**{**usual, "job_id": host.job_id, **more})
    create_outcome(store, outcome, key_signer)
    return outcome
