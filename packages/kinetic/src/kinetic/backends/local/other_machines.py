"""Jobs in a bucket that belong to another machine or home: observed by lease, outcome and log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from kinetic.backends.backend import LogLine, Observation
from kinetic.backends.local.watch import StoreEvents
from kinetic.errors import JobError, RecordError
from kinetic.job_status import JobStatus
from kinetic.jobs.attempts import Verify, attempts_of
from kinetic.jobs.lasting_store import lasting
from kinetic.jobs.outcome import stored_outcome
from kinetic.jobs.presence import STARTING, Heartbeat, Presence, presence_of
from kinetic.jobs.stored_logs import follow_stored, latest_lines
from kinetic.waiting import Deadline, sleep
from kinetic_payload.errors import ObjectNotFoundError, StoreError
from kinetic_payload.layout import LEASE_SECONDS, JobObjects
from kinetic_payload.limits import read_record
from kinetic_payload.records.decode import decode
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.lease import Lease
from kinetic_payload.records.signing import UNSIGNED
from kinetic_payload.stores.store import Store

_AWAY: Final = "or its machine sleeps or is offline. If it comes back, the job goes on."
_POLL_LEAST: Final = 0.25
_POLL_MOST: Final = 2.0


def observation_of(heartbeat: Heartbeat, presence: Presence) -> Observation:
    """Return the supervisor's presence as an observation of the job.

    A lost supervisor may still live: its laptop may be asleep, even before the first lease, and the job may
    go on tomorrow. So no other process writes a failure for it.
    """
    match presence:
        case Presence.ALIVE:
            return Observation(JobStatus.RUNNING, f"It runs on {heartbeat.holder}.")
        case Presence.STARTING:
            return Observation(JobStatus.PENDING, "Its supervisor has not written its lease yet.")
        case Presence.LOST:
            since = datetime.fromtimestamp(heartbeat.renewed or 0.0, UTC)
            return Observation(
                JobStatus.FAILED,
                f"Its supervisor on {heartbeat.holder} has been silent since "
                f"{since:%Y-%m-%d %H:%M:%S} UTC: it was killed, {_AWAY}",
                lost=True,
            )
        case Presence.ABSENT if heartbeat.recorded is not None:
            reason = f"Its supervisor never wrote a lease: its submit was interrupted, {_AWAY}"
            return Observation(JobStatus.NOT_FOUND, reason, lost=True)
        case Presence.ABSENT:
            return Observation(JobStatus.NOT_FOUND)


class OtherMachines:
    """Observes such jobs. A job may have no lease for *starting* seconds after its record was written.

    Outcomes, claims and reports that *verify* refuses are ignored.
    """

    def __init__(
        self, store: Store, *, starting: float = STARTING, verify: Verify = UNSIGNED.verify
    ) -> None:
        self._store = store
        self._verify = verify
        self._starting = starting
        self._leases: dict[str, Lease] = {}

    def observe(self, record: JobRecord) -> Observation:
        """Observe the job once, by its lease."""
        heartbeat = self._heartbeat(record)
        return observation_of(heartbeat, presence_of(heartbeat, starting=self._starting))

    def events(self, record: JobRecord) -> StoreEvents:
        """Return the changes of the job's outcome and of its supervisor's presence."""
        outcome = JobObjects(record.job_id).outcome

        def look() -> object:
            found = self._store.stat(outcome)
            # Not whether it exists: the job may replace an object that another process wrote there.
            return found.generation if found is not None else None, self._presence(record)

        return StoreEvents(look, _pause_after)

    def log_lines(
        self, record: JobRecord, *, follow: bool, tail: int | None, stopped: Callable[[], bool]
    ) -> Iterator[LogLine]:
        """Iterate over the stored log; with *follow* as it is written, until the job ends."""
        if not follow:
            return latest_lines(self._store, record, self._verify, tail=tail)
        pauses = _Pauses()

        def ended() -> bool:
            try:
                return stopped() or self._is_over(record)
            except StoreError:
                return False  # The log itself reports an outage.

        return follow_stored(
            lasting(self._store, stopped=stopped),
            record,
            tail=tail,
            ended=ended,
            pause=lambda: sleep(pauses.next()),
            verify=self._verify,
        )

    def await_end(self, record: JobRecord, *, timeout: float, poll_interval: float) -> None:
        """Wait until the job does not run any more, as far as the store shows.

        The supervisor reads the outcome within a few seconds, and stops the job.

        Raises:
            JobError: It still runs after *timeout* seconds.
        """
        deadline = Deadline(timeout)
        while True:
            heartbeat = self._heartbeat(record)
            presence = presence_of(heartbeat, starting=self._starting)
            if self._has_gone(record, presence):
                return
            if deadline.passed:
                if presence is Presence.STARTING:
                    return  # If the job starts later, its supervisor reads the outcome and stops it.
                raise JobError(
                    f"Job {record.job_id} still runs on {heartbeat.holder}, {timeout:g} s after the "
                    "request to stop.",
                    hint="Its supervisor checks for a request every few seconds; then its function has a "
                    "grace to end. Try again.",
                    job_id=record.job_id,
                )
            sleep(deadline.at_most(max(_POLL_LEAST, min(poll_interval, _POLL_MOST))))

    def _is_over(self, record: JobRecord) -> bool:
        """Return whether the log is complete."""
        outcome = stored_outcome(self._store, record.job_id, self._verify)
        if outcome is None:
            return self._presence(record) in (Presence.LOST, Presence.ABSENT)
        # A runner or a supervisor writes the outcome after the logs; a client writes it while the job runs.
        by_client = fields_of(outcome).get("written_by") == "client"
        return not by_client or self._has_gone(record, self._presence(record))

    def _has_gone(self, record: JobRecord, presence: Presence) -> bool:
        if presence is Presence.STARTING:
            # The job may have ended before its first lease. Then every host has reported.
            if stored_outcome(self._store, record.job_id, self._verify) is None:
                return False
            attempts = attempts_of(self._store, record, self._verify)
            return len(attempts.ends.get(attempts.latest, ())) == record.hosts
        return presence is not Presence.ALIVE

    def _presence(self, record: JobRecord) -> Presence:
        return presence_of(self._heartbeat(record), starting=self._starting)

    def _heartbeat(self, record: JobRecord) -> Heartbeat:
        names = JobObjects(record.job_id)
        found = self._store.stat(names.lease)
        lease = self._lease(record.job_id) if found is not None else None
        if found is not None and lease is not None:
            return Heartbeat(self._store.now(), lease.holder, found.updated, lease.seconds)
        handle = self._store.stat(names.handle)
        return Heartbeat(self._store.now(), recorded=handle.updated if handle is not None else None)

    def _lease(self, job_id: str) -> Lease | None:
        """Return the lease, whose contents do not change while it exists."""
        known = self._leases.get(job_id)
        if known is None:
            name = JobObjects(job_id).lease
            try:
                known = decode(Lease, read_record(self._store, name), name=name)
                if known.job_id != job_id:
                    raise RecordError(f"{name} is the lease of another job.")
            except ObjectNotFoundError:
                return None  # It was removed a moment ago.
            except RecordError:
                # Leases are not signed: they only show that a job seems to run.
                known = Lease(job_id=job_id, holder="an unknown machine", seconds=LEASE_SECONDS)
            self._leases[job_id] = known
        return known


def _pause_after(elapsed: float) -> float:
    return min(_POLL_MOST, max(_POLL_LEAST, elapsed / 20))


class _Pauses:
    """Pauses between two looks, which grow with the time since the first."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    def next(self) -> float:
        return _pause_after(self._clock() - self._began)
