"""How a job maps to something that runs: the `Backend` protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kinetic.job_status import JobStatus
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome

if TYPE_CHECKING:
    from kinetic.submit.request import JobRequest
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.project.roots import ProjectPlan

GRACE_SECONDS = 30.0
"""Between SIGTERM and SIGKILL, where nothing else is asked for: the default of Kubernetes."""


def never() -> bool:
    """Return False: nobody stops it."""
    return False


@dataclass(frozen=True)
class Packaging:
    """The project of a call that is being packaged."""

    plan: ProjectPlan
    reads_buckets: Callable[[], bool]
    """Whether data of the call lies in buckets; known, and returned, once the call is pickled."""
    report: Callable[[str], None]
    """Shows the user what takes long."""


@dataclass(frozen=True)
class Environment:
    """Where a function will run, prepared before its job is recorded. Backends add what they need."""

    image: str
    """As records name it (`image_uri`): an image, or an interpreter of this machine."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All a backend needs to start a job whose record, payload and context are in the store."""

    record: JobRecord
    request: JobRequest
    """What was asked for. Its captured variables are secret: never persisted, logged or shown."""
    environment: Environment
    """What `Backend.environment` returned."""
    data: tuple[DataRef, ...] = ()
    """What replaced the `Data` of the call, volumes included."""
    signing_key: bytes | None = field(default=None, repr=False)
    """What the job's records are signed with, where its store is a bucket. User code never sees it."""
    grace: float = GRACE_SECONDS
    """Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class AttemptView:
    """One attempt, as far as the backend can tell."""

    number: int
    hosts: int
    state: str
    """`running`, `succeeded`, `failed`, `disrupted` (preempted, for instance), `unknown`."""
    message: str = ""


@dataclass(frozen=True)
class Observation:
    """What a backend sees of a job's resource, before the durable outcome is considered."""

    status: JobStatus
    """NOT_FOUND where it is certain that no resource is left."""
    reason: str = ""
    """Why it is pending, or how it died; one sentence."""
    attempts: tuple[AttemptView, ...] = ()
    vanished: bool = False
    """The resource ended (or its keeper died): nothing of it can report or write an outcome any more."""
    lost: bool = False
    """Nothing was heard of it for longer than it should be silent; it may come back all the same."""
    unreachable: bool = False
    """What keeps it cannot be asked from here: it can be waited for, but not stopped or removed."""
    upload_pending: bool = False
    """Its function has ended, and its result lies where it ran: nobody may say that it failed.
    If it does not run any more, `store_result` stores it."""

    @property
    def going_on(self) -> bool:
        """Whether the job waits or runs, with nothing else to know about it."""
        unclear = self.vanished or self.lost or self.unreachable or self.upload_pending
        return self.status in (JobStatus.PENDING, JobStatus.RUNNING) and not unclear


@dataclass(frozen=True)
class Explanation:
    """Why a job is as it is."""

    reason: str = ""
    """What was seen, in one or a few sentences; empty where there is nothing to say."""
    remedy: str = ""
    """What its user can do about it; empty where the reason needs none, or none is known."""
    trouble: bool = False
    """Whether something keeps it from going on, or from being stored, that a waiting user should read."""

    @property
    def text(self) -> str:
        """Both, as people read them."""
        return " ".join(filter(None, (self.reason, self.remedy)))


@dataclass(frozen=True)
class Listed:
    """A job that a backend knows."""

    job_id: str
    observation: Observation


@dataclass(frozen=True)
class LogLine:
    """One line of a host's output, without its line end. Text is data, never markup."""

    text: str
    host: int = 0
    attempt: int = 1
    hosts: int = 1
    """Of the job; with several, `shown` says whose line it is."""

    @property
    def shown(self) -> str:
        """The line as people see it."""
        return f"[host {self.host}] {self.text}" if self.hosts > 1 else self.text


class Watch(Protocol):
    """Jobs that are watched."""

    def wait(self, timeout: float | None) -> None:
        """Return when something of the jobs may have changed since the last call, or after *timeout* seconds.

        The first call may return at once. Never spins.
        """
        ...

    def wake(self) -> None:
        """Let `wait` return at once, the one under way or the next. Any thread may call it."""
        ...


class Backend(Protocol):
    """What every backend does, in the order of a job's life. All pass `kinetic.testing.BackendContract`.

    A backend knows its store. It prints nothing, and unpickles nothing. What only looks gives up after
    some seconds where the store or the cluster is not reached, as the block it is called in says
    (`kinetic_payload.stores.outages.limited`).
    """

    name: str

    def check(self, request: JobRequest) -> None:
        """Refuse what the backend cannot run, before anything is packaged; it may ask the cluster.

        Raises:
            KineticError: It cannot run it; the hint says what it can.
        """
        ...

    def environment(self, request: JobRequest, project: Packaging) -> Environment:
        """Return where the function will run, prepared first if need be.

        It is called in a thread of its own while the project is packaged.
        """
        ...

    def announced(self, record: JobRecord) -> AbstractContextManager[JobRecord]:
        """Let the job be seen as pending within the block, in which its record is written and it starts.

        The block gets the record to write, completed with what says who keeps the job.

        Raises:
            SubmitError: It will not start.
        """
        ...

    def start(self, launch: Launch) -> None:
        """Start the resource. On failure nothing of it stays behind.

        Raises:
            SubmitError: It could not be started.
        """
        ...

    def observe(self, record: JobRecord) -> Observation:
        """Look once, cheaply, at the job's resource.

        Raises:
            UnavailableError: Who knows is not reached: nothing is known of the job.
            KineticError: It cannot be told otherwise: that is not permitted, or asked of another place.
        """
        ...

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:
        """Return why the job, *seen* a moment ago, is as it is; that may cost requests."""
        ...

    def lives_here(self, record: JobRecord) -> bool:
        """Return whether the job is known to live on this machine; the store is not asked."""
        ...

    def watch(self, records: Sequence[JobRecord]) -> AbstractContextManager[Watch]:
        """Watch the jobs of *records* within the block. Their outcomes, in the store, are watched as well.

        What cannot be reached or read is met in `Watch.wait`, which raises as `observe` does.
        """
        ...

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt, hosts interleaved.

        With *follow*, until the job ends, later attempts included, without losing the tail; or until
        *stopped*, which is asked again and again, returns True.
        """
        ...

    def stop(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Stop everything of the job that runs, gracefully, and return when it is gone.

        Raises:
            JobError: It is still there after *timeout* seconds.
        """
        ...

    def remove(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Remove the resource (stopping it if need be): afterwards it is NOT_FOUND."""
        ...

    def list(self) -> Iterable[Listed]:
        """Iterate over the jobs that have a resource, with no more requests than there are pages of them."""
        ...

    def store_result(self, record: JobRecord) -> None:
        """Store the result of a job that ended and could not store it itself.

        Raises:
            StoreError: The store still does not take it; it stays where it is.
        """
        ...

    def unreported(self, record: JobRecord, observation: Observation) -> Outcome:
        """Return the outcome of a job that vanished without one: what its hosts reported decides.

        Of one that is `lost`, only a success is a result.
        """
        ...

    def collect_left(self, recorded: Set[str]) -> None:
        """Have removed, some time, what killed submits left in the store of jobs that are not *recorded*."""
        ...
