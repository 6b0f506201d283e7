"""How a job maps to something that runs: the `Backend` protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from kinetic.job_status import JobStatus
from kinetic_payload.records import JobRecord, Outcome


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All a backend needs to start a job whose record, payload and context are in the store."""

    record: JobRecord
    environment: Mapping[str, str] = field(repr=False)
    """Captured variables and Kinetic's own. Values are secret: never persisted, logged or shown."""
    interpreter: str
    """The Python that runs the function (local backend)."""
    bundle: bytes = field(repr=False)
    """The runner as one file."""
    grace: float = 30.0
    """Seconds between SIGTERM and SIGKILL."""
    memory: int | None = None
    """Bytes all processes of one host may use together."""
    reads_buckets: bool = False
    """Whether data of the call lies in buckets, wherever the job's own objects do."""
    private_mounts: bool = False
    keep_awake: tuple[str, ...] = ()
    """Command that keeps this machine awake while the process whose id is added to it lives."""
    debug_port: int | None = None
    signing_key: bytes | None = field(default=None, repr=False)
    """What the job's outcome is signed with, where its store is a bucket. User code never sees it."""


@dataclass(frozen=True)
class AttemptView:
    """One attempt, as far as the backend can tell."""

    number: int
    hosts: int
    state: str
    """`running`, `succeeded`, `failed`, `unknown`."""
    message: str = ""


@dataclass(frozen=True)
class Observation:
    """What a backend sees of a job's resource, before the durable outcome is considered."""

    status: JobStatus
    """NOT_FOUND where no trace of a resource is left."""
    reason: str = ""
    """Why it is pending, or how it died; one sentence."""
    attempts: tuple[AttemptView, ...] = ()
    vanished: bool = False
    """The resource ended (or its keeper died): nothing of it can report or write an outcome any more."""
    lost: bool = False
    """Nothing was heard of it for longer than it should be silent; it may come back all the same."""
    unreachable: bool = False
    """What keeps it cannot be asked from here: it can be waited for, but not stopped or removed."""
    unsaved: bool = False
    """Its function has ended, and its result lies where it ran: nobody may say that it failed.
    If it does not run any more, `store_result` stores it."""
    trouble: str = ""
    """What keeps it from going on, or from being stored, and its user can do something about."""


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


class Backend(Protocol):
    """What every backend does. All pass `tests/contract/backend.py`.

    Methods take the job's record; none of them unpickles anything.
    """

    name: str

    def kept(self, record: JobRecord) -> JobRecord:
        """Return *record* with what says, wherever it is read, who knows whether its job runs.

        Raises:
            SubmitError: The job cannot be kept here.
        """
        ...

    def announced(self, record: JobRecord) -> AbstractContextManager[None]:
        """Let the job be seen as pending within the block, in which its record is written and it starts.

        Who finds the record before there is a resource would take it for one that vanished.

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
        """Look once at the job's resource."""
        ...

    def lives_here(self, record: JobRecord) -> bool:
        """Return whether the job is known to live on this machine; the store is not asked."""
        ...

    def wait(self, record: JobRecord, timeout: float | None) -> None:
        """Return when something may have changed, or after *timeout* seconds. Never spins."""
        ...

    def log_lines(
        self, record: JobRecord, *, follow: bool = False, tail: int | None = None
    ) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt, hosts interleaved.

        With *follow*, until the job ends, without losing the tail.
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

    def job_ids(self) -> list[str]:
        """Return the ids of jobs that have a resource here."""
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
