"""Rollback: remove what a failed submit has created."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinetic.errors import (
    BucketNotFoundError,
    CredentialsError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
    SubmitError,
)
from kinetic.waiting import Deadline
from kinetic_payload.layout import GRACE_SECONDS, JobObjects, is_group_id, title_of
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.threads import stoppable

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic_payload.records.job import JobRecord

_QUICK = 2.0
"""Seconds within which another process is unlikely to find a new record and to remove it."""
_LONGEST = 45.0
"""Seconds after which a rollback is given up."""


def rollback_share(store_timeout: float) -> float:
    """Return how many seconds of *store_timeout* are reserved for a rollback."""
    return store_timeout / 6


@dataclass
class Rollback:
    """Track what a submit has created for its job so far, and remove it.

    *store_timeout* is how long the whole submit waits for a store that cannot be reached. *clock* is the wall
    clock.
    """

    job_id: str
    services: Services
    store_timeout: float
    clock: Callable[[], float]
    written: list[str] = field(default_factory=list)
    record: JobRecord | None = None
    """Set before the job is announced."""
    recorded_at: float | None = None

    @property
    def recorded(self) -> bool:
        """Whether the record is certainly in the store; no job is started before."""
        return self.recorded_at is not None

    def note_record(self) -> None:
        """Note that the record is in the store."""
        self.recorded_at = self.clock()

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Note that the object *name* may exist, unless the block shows that it was not written."""
        self.written.append(name)
        try:
            yield
        except (
            BucketNotFoundError,
            CredentialsError,
            PreconditionFailedError,
            StorePermissionError,
        ):
            self.written.remove(name)
            raise

    @property
    def record_is_gone(self) -> bool:
        """Whether another process has removed the record.

        In a bucket, this check costs a request, so it is made only if the start took long.
        """
        store = self.services.store
        if self.recorded_at is None:
            return False
        if store.location.kind == "gs" and abs(self.clock() - self.recorded_at) < _QUICK:
            return False
        return store.stat(JobObjects(self.job_id).handle) is None

    def run(self, error: BaseException) -> BaseException:
        """Remove what was created, newest first; return the exception to raise: *error*, or its cause.

        If something could not be removed, a note of the raised exception names it.
        """
        if isinstance(error, StoreUnavailableError) and not error.sent:
            self.written.clear()  # No request has reached the store.
        reason = error
        if isinstance(error, Exception) and self._was_cleaned_up():
            # Whatever *error* is, it follows from that.
            reason = SubmitError(
                f"{title_of(self.job_id)} was cleaned up by another process while it was started.",
                hint="Nothing of it is left. Submit it again.",
            )
        services = self.services.limited(OutageLimit(rollback_share(self.store_timeout)))
        deadline = Deadline(_LONGEST)
        try:
            with stoppable(lambda: deadline.passed):
                self._remove(services)
        except BaseException as failure:
            interrupted = not isinstance(failure, Exception)
            why = str(failure) or "it was not removed in time."
            # Without a record, no command finds the objects.
            left = ", ".join(f"{self.services.store.location}/{name}" for name in self.written)
            command = f"kinetic {'batches' if is_group_id(self.job_id) else 'jobs'} cleanup"
            todo = (
                f"Remove it with: {command} {self.job_id}" if self.recorded else f"Remove: {left}"
            )
            (failure if interrupted else reason).add_note(
                f"{title_of(self.job_id)} did not start, and parts of it may be left behind: {why}\n{todo}"
            )
            if interrupted:
                raise
        return reason

    def _was_cleaned_up(self) -> bool:
        try:
            return self.record_is_gone
        except StoreError:  # The store may be what failed.
            return False

    def _remove(self, services: Services) -> None:
        from kinetic.jobs.stop import remove_objects

        if self.record is not None:
            services.backend.stop(
                self.record, timeout=GRACE_SECONDS, poll_interval=0.1, remove=True
            )
        if self.recorded:
            # Skipped if the backend raised: without its objects, a job that may still run could not be found.
            remove_objects(self.job_id, services.store)
        else:
            for name in reversed(self.written):
                services.store.delete(name)
