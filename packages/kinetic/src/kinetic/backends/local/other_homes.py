"""Jobs whose home cannot be read from here: observed by their objects in the store.

Nothing shows here whether they still run, so no outcome is written for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kinetic.backends.backend import Ending, LogLine, Observation
from kinetic.backends.local.observation import Unreachable
from kinetic.backends.local.watch import StoreEvents
from kinetic.errors import JobError
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import Verify
from kinetic.jobs.outcome import stored_outcome
from kinetic.jobs.stored_logs import log_in_store
from kinetic_payload.layout import JobObjects, is_group_id, title_of
from kinetic_payload.records.job import JobRecord, Keeper
from kinetic_payload.stores.store import Store


@dataclass
class OtherHome:
    """Observes a job of *keeper*, whose folder cannot be read because of *why*.

    *kill* ends the job's processes that are found on this machine.
    """

    store: Store
    keeper: Keeper
    why: Unreachable
    verify: Verify
    kill: Callable[[JobRecord], None]

    def observe(self, record: JobRecord) -> Observation:
        """Return the job's state as the store shows it: pending until a host has begun.

        If the home is gone, its jobs are most likely gone as well; a supervisor that is still alive may
        yet write how its job ended.
        """
        if self.why is Unreachable.GONE:
            return Observation(
                JobStatus.FAILED,
                f"Its home {self.keeper.home} on this machine ({self.keeper.machine}) was removed or "
                "replaced since.",
                ending=Ending.LOST,
            )
        if is_group_id(record.job_id) and self._has_ended(record):
            # Its supervisor stops the workers; nothing shows when it has.
            return Observation(JobStatus.FAILED, "The batch was stopped.", ending=Ending.LOST)
        begun = self.store.stat(JobObjects(record.job_id).claim(1, 0)) is not None
        return Observation(
            JobStatus.RUNNING if begun else JobStatus.PENDING,
            f"Its home {self.keeper.home} on {self.keeper.machine} cannot be read from here: "
            f"{self.why.value}.",
            ending=Ending.UNREACHABLE,
        )

    def events(self, record: JobRecord) -> StoreEvents:
        """Return the changes that the store shows: the job has begun, or has an outcome."""
        names, stat = JobObjects(record.job_id), self.store.stat

        def look() -> object:
            found = [stat(name) for name in (names.outcome, names.claim(1, 0))]
            # Not whether they exist: the job may replace an object that another process wrote there.
            return [None if each is None else each.generation for each in found]

        return StoreEvents(look)

    def log_lines(
        self, record: JobRecord, *, follow: bool, tail: int | None, stopped: Callable[[], bool]
    ) -> Iterator[LogLine]:
        """Iterate over the stored log; with *follow* as it is written, until there is an outcome."""
        follow = follow and self.why is not Unreachable.GONE
        return log_in_store(
            self.store, record, self.verify, follow=follow, tail=tail, stopped=stopped
        )

    def refuse_to_stop(self, record: JobRecord) -> None:
        """Return if the job does not run any more, as far as the store shows.

        Raises:
            JobError: The job may still run, and cannot be stopped from here.
        """
        if self.why is Unreachable.GONE:
            self.kill(record)
        elif not self._has_ended(record):
            raise JobError(
                f"{title_of(record.job_id)} cannot be stopped from here. {self.observe(record).reason}",
                hint="Cancel it there. If that machine or home is gone for good, remove "
                f"{self.store.location}/{JobObjects(record.job_id).prefix} to delete it.",
                job_id=record.job_id,
            )

    def _has_ended(self, record: JobRecord) -> bool:
        """Return whether the job has an outcome; one that somebody forged does not count."""
        return stored_outcome(self.store, record.job_id, self.verify) is not None
