"""`Backend`: the protocol of everything that runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kinetic.job_status import JobStatus
from kinetic_payload.layout import GRACE_SECONDS
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome

if TYPE_CHECKING:
    import socket

    from kinetic.data import Data
    from kinetic.submit.package import Packaging
    from kinetic.submit.request import JobRequest
    from kinetic_payload.data.references import DataRef


def never() -> bool:
    """Return False: nothing is stopped early."""
    return False


@dataclass(frozen=True)
class Environment:
    """The image or interpreter that will run a function, prepared before its job is recorded.

    Backends add fields.
    """

    image: str
    """Recorded as `image_uri`: an image, or an interpreter on this machine."""
    packages: str | None = field(default=None, kw_only=True)
    """The digest of packages that the runner installs; None: it installs none."""


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True)
class AttemptView:
    """One attempt, as the backend sees it."""

    number: int
    hosts: int
    state: str
    """`running`, `succeeded`, `failed`, `disrupted` (preempted, for instance), `bad-node`, `unknown`."""
    message: str = ""


@dataclass(frozen=True)
class Observation:
    """The state of a job's resource, without regard to the outcome in the store."""

    status: JobStatus
    """NOT_FOUND only if it is certain that no resource is left."""
    reason: str = ""
    """Why it is pending, or how it ended; one sentence."""
    attempts: tuple[AttemptView, ...] = ()
    vanished: bool = False
    """The resource ended, or its supervisor died: the job can no longer write an outcome itself."""
    lost: bool = False
    """The job is probably gone, for instance because its home was removed, but it may still continue."""
    unreachable: bool = False
    """The job's home cannot be read from here: the job can be awaited, but not stopped or removed."""
    upload_pending: bool = False
    """The function has ended, and its result is not in the store yet, but on the machine that ran it.
    The job must not be declared failed. Once it no longer runs, `store_result` stores the result.
    """

    ends_silently: bool = False
    """The end of the job changes nothing that a watch shows: only a look at its outcome does."""

    @property
    def going_on(self) -> bool:
        """Whether the job is pending or running, and none of the flags is set."""
        unclear = self.vanished or self.lost or self.unreachable or self.upload_pending
        return self.status in (JobStatus.PENDING, JobStatus.RUNNING) and not unclear


@dataclass(frozen=True)
class Explanation:
    """Why a job has its status."""

    reason: str = ""
    """The observed cause, in one or a few sentences; empty if there is nothing to explain."""
    remedy: str = ""
    """What the user can do about it; empty if nothing is needed or known."""
    trouble: bool = False
    """Whether to show it to a user who waits: something keeps the job from running or from being stored."""

    @property
    def text(self) -> str:
        """Reason and remedy as one text."""
        return " ".join(filter(None, (self.reason, self.remedy)))


@dataclass(frozen=True)
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

    @property
    def shown(self) -> str:
        """The line as it is printed: with its host, if the job has several."""
        return f"[host {self.host}] {self.text}" if self.hosts > 1 else self.text


class Watch(Protocol):
    """A watch on jobs."""

    def wait(self, timeout: float | None) -> None:
        """Return when the jobs may have changed since the last call, or after *timeout* seconds.

        The first call may return at once. It must not busy-wait.
        """
        ...

    def wake(self) -> None:
        """Make the current call of `wait`, or the next one, return at once. Any thread may call it."""
        ...


class Forward(Protocol):
    """Connects clients on this machine to the leader of a job that runs elsewhere."""

    def serve(self, listener: socket.socket, port: int, report: Callable[[str], object]) -> None:
        """Connect each client of *listener* to *port* on the leader's loopback interface.

        Return when the listener is shut down. A client that cannot be connected is disconnected, and the
        reason is passed to *report*; a later client may succeed, for instance after a preemption.
        """
        ...


class Backend(Protocol):
    """The operations of a backend, in the order in which a job needs them.

    Every backend passes `kinetic.testing.BackendContract`.

    A backend knows its store. It prints nothing, and unpickles nothing. If the store or the cluster
    cannot be reached, calls that only observe give up after some seconds. They keep the time limit of
    the block in which they are called (`kinetic_payload.stores.outages.limited`).
    """

    name: str

    def check(self, request: JobRequest) -> Sequence[str]:
        """Refuse a request that the backend cannot run, before anything is packaged; may query the cluster.

        Return warnings for the user.

        Raises:
            KineticError: The backend cannot run the request; the hint says what it can run.
        """
        ...

    def check_data(self, request: JobRequest, data: Data) -> Sequence[str]:
        """Refuse a `Data` of the call that the job could not use, before anything is uploaded.

        Return warnings for the user. Several threads may call it. Volumes are among the data.

        Raises:
            KineticError: The job could not use it; the hint says what to do instead.
        """
        ...

    def environment(self, request: JobRequest, project: Packaging) -> Environment:
        """Prepare and return the environment in which the function will run.

        Called in a separate thread while the project is packaged.
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

    def lives_here(self, record: JobRecord) -> bool:
        """Return whether the job certainly runs on this machine, without a request to the store."""
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

    def forward(self, record: JobRecord) -> Forward | None:
        """Return how this machine reaches ports on the loopback interface of the running job's leader.

        None means that they are ports of this machine's own loopback interface.

        Raises:
            JobError: They cannot be reached from this machine.
        """
        ...

    def check_stop(self, record: JobRecord) -> None:
        """Raise if the resource may not be stopped; change nothing.

        A cancel asks for this before it writes the outcome: the function would go on, and its value be lost.

        Raises:
            KineticError: The message says what keeps running.
        """
        ...

    def stop(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Stop all processes of the job gracefully, and return when they are gone.

        Raises:
            JobError: A process of the job is left after *timeout* seconds.
        """
        ...

    def remove(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Remove the resource; stop it first if it runs. Afterwards it is NOT_FOUND."""
        ...

    def list(self) -> Iterable[Listed]:
        """Iterate over the jobs that have a resource, with one request for each page of them."""
        ...

    def store_result(self, record: JobRecord) -> None:
        """Store the result of a job that ended and could not store it itself.

        Raises:
            StoreError: The result still cannot be stored; it stays where it is.
        """
        ...

    def release(self, record: JobRecord, *, cancelled: bool = False) -> None:
        """Free what the resource of a job that has its outcome would hold without end.

        The resource of a job that was *cancelled* may still run: its canceller may have been killed.
        It is called for each look at such a job, and must be cheap if there is nothing to free. It does not
        raise errors, and relies only on an outcome that is signed with the job's key.
        """
        ...

    def unreported(self, record: JobRecord, observation: Observation) -> Outcome:
        """Return the outcome of a job that vanished without one, decided from its hosts' reports.

        For a lost job, the caller uses only a success.
        """
        ...

    def collect_left(self, recorded: Set[str], ended: Set[str] = frozenset()) -> None:
        """Now and then, start to remove what killed submits and cancels left behind.

        Jobs that are *recorded* are kept; those of them that have *ended* have an outcome.
        """
        ...
