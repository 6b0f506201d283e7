"""`Backend`: the protocol of everything that runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol, Self

from kinetic.job_status import JobStatus
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import GRACE_SECONDS

if TYPE_CHECKING:
    from kinetic.data import Data
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_k8s.cluster.port_forward import PortForward
    from kinetic_payload.data.references import DataRef
    from kinetic_payload.records.batch import GroupManifest
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.outages import OutageLimit


def never() -> bool:
    """Return False: nothing is stopped early."""
    return False


@frozen()
class Environment:
    """The image or interpreter that will run a function, prepared before its job is recorded.

    Backends add fields.
    """

    image: str
    """Recorded as `image_uri`: an image, or an interpreter on this machine."""
    packages: str | None = field(default=None, kw_only=True)
    """The digest of packages that the runner installs; None: it installs none."""
    pathways_tag: str | None = field(default=None, kw_only=True)
    """The tag of Pathways' components, unless a setting names it; None: the default."""


@frozen(kw_only=True)
class Launch:
    """The input of `Backend.start`: a job whose record, payload and context are in the store."""

    record: JobRecord
    record_digest: str
    """The digest of the record as it is stored, by which the runner verifies it."""
    request: JobRequest
    """The request. Its captured variables are secret: never persist, log or show them."""
    environment: Environment
    """The result of `Backend.environment`."""
    data: tuple[DataRef, ...] = ()
    """The references that replaced the `Data` of the call, volumes included."""
    signing_key: bytes | None = field(default=None, repr=False)
    """Signs the job's records if its store is a bucket. It must not reach user code."""
    grace: float = GRACE_SECONDS
    """Seconds between SIGTERM and SIGKILL."""
    batch: GroupManifest | None = None
    """The manifest, if the job is a batch; `record` is then the record in it."""
    workers: tuple[int, ...] = ()
    """The numbers of the workers of a batch that are started."""


@frozen()
class AttemptView:
    """One attempt, as the backend sees it."""

    number: int
    hosts: int
    state: str
    """`running`, `succeeded`, `failed`, `disrupted` (preempted, for instance), `bad-node`, `unknown`."""
    message: str = ""


class Ending(Enum):
    """How the outcome of a job will be known."""

    REPORTED = "reported"
    """The job writes it, and a watch shows that."""
    SILENT = "silent"
    """The job writes it, and no watch shows that: only a look at the outcome does."""
    VANISHED = "vanished"
    """The resource ended, or its supervisor died: the job can no longer write an outcome itself."""
    LOST = "lost"
    """The job is probably gone, for instance because its home was removed, but it may still continue."""
    UNREACHABLE = "unreachable"
    """The job's home cannot be read from here: the job can be awaited, but not stopped or removed."""
    KEPT = "kept"
    """The function has ended, and its result is not in the store yet, but on the machine that ran it.
    The job must not be declared failed. Once it no longer runs, a client stores the result.
    """


@frozen()
class Observation:
    """The state of a job's resource, without regard to the outcome in the store."""

    status: JobStatus
    """NOT_FOUND only if it is certain that no resource is left."""
    reason: str = ""
    """Why it is pending, or how it ended; one sentence."""
    attempts: tuple[AttemptView, ...] = ()
    ending: Ending = Ending.REPORTED
    kept_in: str = ""
    """The folder of this machine that keeps the result of a job that ended, if that is `Ending.KEPT`."""

    @property
    def active(self) -> bool:
        """Whether the job waits or runs, and writes its outcome itself."""
        active = self.status in (JobStatus.PENDING, JobStatus.RUNNING)
        return active and self.ending in (Ending.REPORTED, Ending.SILENT)


@frozen()
class Explanation:
    """Why a job has its status."""

    reason: str = ""
    """The observed cause, in one or a few sentences; empty if there is nothing to explain."""
    remedy: str = ""
    """What the user can do about it; empty if nothing is needed or known."""
    trouble: bool = False
    """Whether to show it to a user who waits: something keeps the job from running or from being stored."""
    out_of_memory: bool = False
    """Whether that is why it ended."""

    @property
    def text(self) -> str:
        """Reason and remedy as one text."""
        return " ".join(filter(None, (self.reason, self.remedy)))


@frozen()
class Listed:
    """A job that a backend knows."""

    job_id: str
    observation: Observation


@dataclass(frozen=True)
class LogLine:
    """One line of a host's output, without its line end."""

    text: str
    host: int = 0
    attempt: int = 1
    hosts: int = 1
    """The number of hosts of the job."""
    stream: Literal["stdout", "stderr"] = "stdout"
    """Where the host wrote it. Lines of Kinetic's own are on `stderr`."""
    end: str = "\n"
    """Empty if the line goes on in the next one of its host and stream."""

    @property
    def shown(self) -> str:
        """The line as it is printed: with its host, if the job has several."""
        return f"[host {self.host}] {self.text}" if self.hosts > 1 else self.text


class Watch(Protocol):
    """A watch on jobs."""

    def wait(self, timeout: float | None) -> object:
        """Return when the jobs may have changed since the last call, or after *timeout* seconds.

        The first call may return at once. It must not busy-wait. An outcome in the store may not wake it, so
        that callers look at the job every 30 s.
        """
        ...

    def wake(self) -> None:
        """Make the current call of `wait`, or the next one, return at once. Any thread may call it."""
        ...


class Backend(Protocol):
    """The operations of a backend, in the order in which a job needs them.

    Every backend passes `kinetic.testing.BackendContract`.

    A backend knows its store. It prints nothing, and unpickles nothing. If the cluster cannot be reached,
    calls that only observe give up after some seconds.
    """

    name: str

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same backend for the calls of one operation, which together wait for the store up to *limit*."""
        ...

    def check(self, request: JobRequest, data: Data | None = None) -> Sequence[str]:
        """Refuse a request that the backend cannot run, before anything is packaged; may query the cluster.

        With *data*, check only that `Data` of the call, or volume of the request, before anything is uploaded;
        several threads may do that. Return warnings for the user.

        Raises:
            KineticError: The backend cannot run the request; the hint says what it can run.
        """
        ...

    def environment(self, request: JobRequest, project: Packaging) -> Environment:
        """Prepare and return the environment in which the function will run.

        Called in a separate thread while the project is packaged.
        """
        ...

    def environment_of(self, record: JobRecord, request: JobRequest) -> Environment:
        """Return the environment that was prepared for a recorded batch, which is started again.

        Raises:
            SubmitError: It is not there any more.
        """
        ...

    def announced(self, record: JobRecord) -> AbstractContextManager[JobRecord]:
        """Report the job as pending within the block, in which the caller records and starts it.

        Yield the completed record, which the caller must write.

        Raises:
            SubmitError: The job cannot start.
        """
        ...

    def start(self, launch: Launch) -> None:
        """Start the resource. On failure leave nothing of it behind.

        Raises:
            SubmitError: It could not be started.
        """
        ...

    def observe(self, record: JobRecord) -> Observation:
        """Observe the job's resource once, cheaply.

        Raises:
            UnavailableError: The store or the cluster cannot be reached.
            KineticError: The user may not observe the job, or it was submitted elsewhere.
        """
        ...

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:
        """Return why the job has its status. *seen* is its latest observation. May send requests."""
        ...

    def watch(self, records: Sequence[JobRecord]) -> AbstractContextManager[Watch]:
        """Watch the jobs of *records*, and their outcomes in the store, within the block.

        `Watch.wait` raises what `observe` raises.
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

        With *follow*, continue with later attempts, up to the last line of the job. Stop earlier if
        *stopped*, which is called repeatedly, returns True.
        """
        ...

    def forward(self, record: JobRecord) -> PortForward | None:
        """Return how this machine reaches ports on the loopback interface of the running job's leader.

        None means that they are ports of this machine's own loopback interface.

        Raises:
            JobError: They cannot be reached from this machine.
        """
        ...

    def execute(
        self, record: JobRecord, command: Sequence[str], *, host: int, terminal: bool
    ) -> int:
        """Run *command* beside the function on *host* of the running job, and return its exit code.

        It has the streams of this process, or with *terminal* its terminal, and the folder and the environment of the
        function's process.

        Raises:
            JobError: The host does not run now, or cannot be reached from this machine.
        """
        ...

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

        With *remove*, also remove the resource: afterwards it is NOT_FOUND. With *dry_run*, change nothing, and
        raise if it may not be stopped. A cancel asks for this before it writes the outcome: the function would
        go on, and its value be lost.

        Raises:
            JobError: A process of the job is left after *timeout* seconds.
            KineticError: It may not be stopped; the message says what keeps running.
        """
        ...

    def list(self) -> Iterable[Listed]:
        """Iterate over the jobs that have a resource, with one request for each page of them."""
        ...

    def tidy(
        self,
        ended: Sequence[JobRecord],
        *,
        cancelled: bool = False,
        recorded: Set[str] | None = None,
    ) -> None:
        """Free what is left of jobs that have *ended*, and would stay without end.

        It is called for each look at such a job, and must be cheap if there is nothing to free. The resource of a
        job that was *cancelled* may still run: its canceller may have been killed. With *recorded*, the ids of
        all jobs in the store, also remove what killed submits and cancels left of other jobs.

        It does not raise errors, and deletes a resource only after an outcome that is signed with the job's key.
        """
        ...
