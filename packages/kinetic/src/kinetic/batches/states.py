"""The states of the inputs of a batch: one list of outcomes, and one look at its resource."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kinetic.backends.backend import Ending
from kinetic.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    JobNotFoundError,
    NotLaunchedError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.outcome import status_of
from kinetic.jobs.records import find_outcome, listed_outcome
from kinetic.jobs.status import asking
from kinetic.user_warnings import warn_caller
from kinetic_payload.errors import ObjectNotFoundError, RecordError, SignatureError
from kinetic_payload.layout import JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.threads import parallel_map

if TYPE_CHECKING:
    from kinetic.jobs.services import Services
    from kinetic_payload.records.batch import GroupManifest
    from kinetic_payload.records.outcome import Outcome

_MOST_WARNINGS: Final = 50
MOST: Final = 2000
"""The most outcomes of one look, each with a small value: memory is independent of the size of a batch."""


@dataclass(frozen=True)
class Look:
    """One look at a batch."""

    ended: list[tuple[int, Outcome]]
    """The inputs with an outcome that were not skipped, in no order."""
    more: bool
    """Whether there are further ones, which the next look shows."""
    statuses: dict[int, JobStatus]
    """Of all submitted inputs."""
    over: bool
    """Whether nothing waits or runs any more."""
    reason: str
    """How the resource of the batch is, in one sentence; often empty."""
    left: list[int]
    """The inputs that wait or run; of a batch that is over, those that never had an outcome."""
    collected: bool
    """Whether `results` fetched all values, and removed them then."""
    elsewhere: bool
    """Whether workers can only be started where the batch was submitted: from here it is not known whether they run."""

    def status_of(self, manifest: GroupManifest) -> JobStatus:
        """Return the status of the batch: once it is over, the worst of its inputs."""
        found = {*self.statuses.values()}
        if not self.over:
            return JobStatus.PENDING if found == {JobStatus.PENDING} else JobStatus.RUNNING
        if self.collected:
            return JobStatus.SUCCEEDED
        if manifest.failed:
            return JobStatus.FAILED
        worst_first = (JobStatus.FAILED, JobStatus.NOT_FOUND)
        return next((each for each in worst_first if each in found), JobStatus.SUCCEEDED)


class States:
    """What is known of the inputs of a batch in this process."""

    def __init__(self, manifest: GroupManifest, services: Services) -> None:
        self._manifest = manifest
        self._services = services
        self._group = JobObjects(manifest.group_id)
        self._submitted = [
            index for index in range(manifest.total_expected) if str(index) not in manifest.failed
        ]
        self._ended: dict[int, JobStatus] = {}
        self._refused: dict[int, int] = {}
        """Inputs whose outcome was refused, and its generation: somebody else wrote it, or damaged it."""
        self.last: Look | None = None

    def look(self, *, skip: Container[int] = (), most: int | None = None) -> Look:
        """Look at the resource and at the outcomes; return at most *most* of those that are not in *skip*."""
        record = self._manifest.job_record
        with asking(record):
            seen = self._services.backend.observe(record)
        # In this order: what a resource has written that is gone is in the list.
        ended, more = self._list(skip, most)
        left = [index for index in self._submitted if index not in self._ended]
        # Of a batch whose home cannot be read from here, only outcomes show anything.
        goes_on = seen.active or seen.ending is Ending.UNREACHABLE
        over = not more and not (left and goes_on)
        end = self._find_end() if over and left else None
        collected = end is not None and end.status == "succeeded"
        # The resource of a stopped batch may be removed; without its outcome, all of it was.
        removed = collected or (
            over
            and bool(left)
            and end is None
            and (
                seen.status is JobStatus.NOT_FOUND
                or self._services.store.stat(self._group.payload) is None
            )
        )
        rest = JobStatus.NOT_FOUND if removed else JobStatus.FAILED
        first_of: dict[int, int] = {}
        if not over and seen.status is not JobStatus.PENDING:
            # Workers begin with the lowest indexes, each with the lowest of its own.
            for index in left:
                first_of.setdefault(index // self._manifest.per_worker, index)
        running = {*[*first_of.values()][: self._manifest.max_concurrent]}
        statuses = {
            index: self._ended.get(index)
            or (rest if over else JobStatus.RUNNING if index in running else JobStatus.PENDING)
            for index in self._submitted
        }
        elsewhere = seen.ending in (Ending.LOST, Ending.UNREACHABLE)
        reason = end.message if end is not None and collected else seen.reason
        self.last = Look(ended, more, statuses, over, reason, left, collected, elsewhere)
        return self.last

    def _list(
        self, skip: Container[int], most: int | None
    ) -> tuple[list[tuple[int, Outcome]], bool]:
        """Return the outcomes that a list shows, and whether there are more than *most*."""
        own = re.compile(rf"{re.escape(self._group.members)}([0-9]{{6,}})/outcome\.json")
        missing: list[tuple[int, int]] = []
        ended: list[tuple[int, Outcome]] = []
        known, more, count = dict[int, JobStatus](), False, 0

        def add(index: int, generation: int, data: bytes | None = None) -> None:
            outcome = self._outcome(index, generation, data)
            if outcome is not None:
                ended.append((index, outcome))

        for info, data in self._services.store.records(self._group.members):
            parts = own.fullmatch(info.name)
            if parts is None or int(parts[1]) >= self._manifest.total_expected:
                continue
            index = int(parts[1])
            if (len(parts[1]) > 6 and parts[1][0] == "0") or self._refused.get(
                index
            ) == info.generation:
                continue
            # A failed input may have been run again; a success stays.
            certain = self._ended.get(index) is JobStatus.SUCCEEDED and most is None
            if certain or (index in skip and index in self._ended):
                known[index] = self._ended[index]
            elif count == most:
                more = True
                break
            else:
                count += 1
                # Threads are for requests: to decode in many of them takes three times as long.
                if data is None:
                    missing.append((index, info.generation))
                else:
                    add(index, info.generation, data)
        parallel_map(lambda one: add(*one), missing, threads=self._services.store.concurrency)
        known |= {index: status_of(outcome) for index, outcome in ended}
        # A clean-up may have removed what was known; a list that was not read to its end does not show that.
        self._ended = {**self._ended, **known} if more else known
        return ended, more

    def _outcome(self, index: int, generation: int, data: bytes | None) -> Outcome | None:
        """Return the outcome of an input; None if it is gone, or not the job's own."""
        store, job_id = self._services.store, self._manifest.job_id(index)
        try:
            if data is None:
                data = read_record(store, JobObjects(job_id).outcome)
            return listed_outcome(store, job_id, data, self._services.verify)
        except ObjectNotFoundError:
            return None  # A clean-up removed it meanwhile.
        except (RecordError, SignatureError) as error:
            if len(self._refused) < _MOST_WARNINGS:
                warn_caller(f"The outcome of input {index} is ignored: {error.message}")
            self._refused[index] = generation
            return None

    def only_idle_workers_are_left(self, look: Look) -> bool:
        """Tell whether the batch was stopped after failures, all begun inputs ended, and its resource still goes on.

        A cluster would start a worker for each of the others, on machines that it may have to get first.
        """
        if look.over or JobStatus.FAILED not in look.statuses.values():
            return False
        stop = self.find_stop()
        if stop is None or not self._list_begun().isdisjoint(look.left):
            return False
        return self._manifest.next_step(stop.status) == "end"

    def outcome_of(self, index: int) -> Outcome | None:
        """Return the outcome of the input *index*, read from the store; None if it has none."""
        job_id = self._manifest.job_id(index)
        found = find_outcome(self._services.store, job_id, verify=self._services.verify)
        return None if found is None else found.record

    def why_gone(self, index: int) -> JobError | None:
        """Return the error for a part of the end of an input that is gone, if another call has collected the batch."""
        end = self._find_end()
        collected = end is not None and end.status == "succeeded"
        return self._collected_error(index) if collected else None

    def _collected_error(self, index: int) -> JobError:
        return JobNotFoundError(
            f"Input {index} has no value any more: another call of results() has collected all of them.",
            hint="That call removes them, unless it gets cleanup=False.",
            job_id=self._manifest.job_id(index),
        )

    def why_not(self, index: int) -> JobError:
        """Return the error for an input without an outcome in a batch that is over."""
        job_id = self._manifest.job_id(index)
        stopped = self.stopped
        if stopped is None:
            assert self.last is not None
            if self.last.collected:
                return self._collected_error(index)
            if self.last.statuses.get(index) is JobStatus.NOT_FOUND:
                return JobNotFoundError(
                    f"Input {index} has neither an outcome nor a resource: its batch was cleaned up.",
                    job_id=job_id,
                )
            return JobFailedError(
                f"Input {index} has no outcome, and its batch does not run any more. {self.last.reason}".rstrip(),
                job_id=job_id,
            )
        if index in self._begun:
            return JobCancelledError(f"Input {index} was stopped: {stopped.message}", job_id=job_id)
        return NotLaunchedError(
            f"Input {index} was never started: {stopped.message}", job_id=job_id
        )

    @cached_property
    def stopped(self) -> Outcome | None:
        """What `find_stop` returns, read once."""
        return self.find_stop()

    def find_stop(self) -> Outcome | None:
        """Return the outcome of a batch that was cancelled, or stopped after failures; None of any other."""
        end = self._find_end()
        return None if end is None or end.status == "succeeded" else end

    def _find_end(self) -> Outcome | None:
        """Return the outcome of the batch itself: why it was stopped, or that its values were collected."""
        store, verify = self._services.store, self._services.verify
        found = find_outcome(store, self._group.job_id, verify=verify)
        return None if found is None else found.record

    @cached_property
    def _begun(self) -> set[int]:
        return self._list_begun()

    def _list_begun(self) -> set[int]:
        """Return the inputs of which an attempt has begun."""
        own = re.compile(rf"{re.escape(self._group.members)}([0-9]{{6,}})/attempts/.*")
        names = (info.name for info in self._services.store.list(self._group.members))
        return {int(found[1]) for name in names if (found := own.fullmatch(name))}
