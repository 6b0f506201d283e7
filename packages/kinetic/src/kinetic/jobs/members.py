"""The members of a batch: each is a job, and the resource of the batch runs all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from kinetic.backends.backend import (
    Ending,
    Explanation,
    Listed,
    LogLine,
    Observation,
    Watch,
    never,
)
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import Verify, attempts_of
from kinetic.jobs.outcome import stored_outcome
from kinetic.jobs.services import Services
from kinetic.jobs.stored_logs import log_in_store
from kinetic.waiting import STORE_POLL, Deadline, sleep
from kinetic_payload.layout import JobObjects

if TYPE_CHECKING:
    from kinetic.backends.backend import Backend
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.outages import OutageLimit
    from kinetic_payload.stores.store import Store


def member_services(services: Services, member: JobRecord) -> Services:
    """Return the services of a *member* of a batch; *services* are those of the batch."""
    group = replace(
        member, job_id=member.group_id or "", group_id=None, group_kind=None, group_index=None
    )
    backend = MemberBackend(services.backend, services.store, services.verify, group)
    return Services(services.store, backend, key_signer=services.key_signer)  # type: ignore[arg-type]


@dataclass
class MemberBackend:
    """The backend of the members of a batch. *record* is that of the batch, which *backend* runs."""

    backend: Backend
    store: Store
    verify: Verify
    record: JobRecord

    @property
    def name(self) -> str:
        """The name of the backend that runs the batch."""
        return self.backend.name

    def limited(self, limit: OutageLimit) -> Self:
        """Return the same backend for the calls of one operation, which share *limit*."""
        return replace(self, backend=self.backend.limited(limit), store=self.store.limited(limit))

    def observe(self, record: JobRecord) -> Observation:
        """Return the state of a member that has no outcome, as that of the batch shows it.

        It waits until a worker has claimed it. If the batch ended without it, nothing is decided: the batch may be
        continued, and it knows which of its inputs were never started.
        """
        seen = self.backend.observe(self.record)
        attempts = attempts_of(self.store, record, self.verify)
        if seen.active:
            begun = attempts.latest > 0
            status = JobStatus.RUNNING if begun else JobStatus.PENDING
            reason = seen.reason if begun else "It waits for a worker of its batch."
            return Observation(status, reason, attempts.views(running=True))
        group = JobObjects(self.record.job_id)
        if self.store.stat(group.payload) is None:
            return Observation(JobStatus.NOT_FOUND, "Its batch was cleaned up.")
        stopped = stored_outcome(self.store, group.job_id, self.verify) is not None
        why = "Its batch was stopped before it ended." if stopped else "Its batch ended without it."
        return Observation(
            JobStatus.FAILED,
            f"{why} {seen.reason}".rstrip(),
            attempts.views(running=False),
            Ending.LOST,
        )

    def explain(self, record: JobRecord, seen: Observation) -> Explanation:  # noqa: ARG002
        """Return the observed reason."""
        return Explanation(seen.reason)

    @contextmanager
    def watch(self, records: Sequence[JobRecord]) -> Iterator[Watch]:  # noqa: ARG002
        """Watch the batch."""
        with self.backend.watch([self.record]) as watch:
            yield _Polling(watch)

    def log_lines(
        self,
        record: JobRecord,
        *,
        follow: bool = False,
        tail: int | None = None,
        stopped: Callable[[], bool] = never,
    ) -> Iterator[LogLine]:
        """Iterate over the stored log of a member; with *follow* as it is written, until there is an outcome."""
        return log_in_store(
            self.store, record, self.verify, follow=follow, tail=tail, stopped=stopped
        )

    def forward(self, record: JobRecord) -> None:
        """Refuse: members are not debugged."""
        raise JobError(
            f"{record.job_id} is a member of a batch, whose ports are not forwarded.",
            job_id=record.job_id,
        )

    def execute(
        self,
        record: JobRecord,
        command: Sequence[str],  # noqa: ARG002
        *,
        host: int,  # noqa: ARG002
        terminal: bool,  # noqa: ARG002
    ) -> int:
        """Refuse: a worker runs members one after another."""
        raise JobError(
            f"{record.job_id} is a member of a batch: a worker runs it, among others.",
            hint=f"Its log: kinetic jobs logs {record.job_id}",
            job_id=record.job_id,
        )

    def stop(
        self,
        record: JobRecord,
        *,
        timeout: float,
        poll_interval: float,
        remove: bool = False,  # noqa: ARG002
        dry_run: bool = False,
    ) -> None:
        """Return when the member does not run any more: its worker sees the outcome, stops it, and goes on.

        With several hosts, when the first of them has stopped it: they restart together, so the others may never
        report, but each stops it at its next look.

        Raises:
            JobError: It still runs after *timeout* seconds.
        """
        deadline = Deadline(timeout)
        while not dry_run and self.backend.observe(self.record).active:
            if all(attempts_of(self.store, record, self.verify).ends.values()):
                return  # Each attempt that began has reported its end.
            if deadline.passed:
                raise JobError(
                    f"{record.job_id} still runs {timeout:g} s after the request to stop.",
                    hint="Its function may need a longer grace to end; try again.",
                    job_id=record.job_id,
                )
            sleep(deadline.at_most(max(STORE_POLL, poll_interval)))

    def list(self) -> Iterator[Listed]:
        """Iterate over nothing: a member has no resource of its own."""
        return iter(())

    def tidy(
        self,
        ended: Sequence[JobRecord],
        *,
        cancelled: bool = False,
        recorded: Set[str] | None = None,
    ) -> None:
        """Do nothing: the resource belongs to the batch."""


class _Polling:
    """A watch of a batch that also returns soon by itself: the outcome of a member does not change the batch."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.wake = watch.wake

    def wait(self, timeout: float | None) -> object:
        """Return when something may have changed, or after *timeout* seconds."""
        return self._watch.wait(STORE_POLL if timeout is None else min(STORE_POLL, timeout))
