"""Attempts of a job, read from its claims and reports in the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from kinetic.backends.backend import AttemptView, Observation
from kinetic.job_status import JobStatus
from kinetic_payload.errors import ObjectNotFoundError, RecordError, SignatureError
from kinetic_payload.frozen import frozen
from kinetic_payload.layout import JobObjects, claim_of, host_outcome_of
from kinetic_payload.limits import read_record
from kinetic_payload.records.attempt_result import (
    HostEnd,
    Result,
    deciding,
    ended_attempts,
    parse_host_end,
)
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.retry import Tally, another_attempt, tally_of
from kinetic_payload.stores.store import Store

Verify = Callable[[bytes, str], None]
"""Raises `SignatureError` if the bytes, read from the object of that name, were not written by the job."""


@frozen()
class Attempts:
    """The attempts of a job that are known to have begun. Their numbers may have gaps."""

    hosts: int
    ends: Mapping[int, Sequence[HostEnd]]
    """How the hosts of each attempt ended, by its number, without those that did not report."""

    @property
    def latest(self) -> int:
        """The number of the latest attempt; 0 if none has begun."""
        return max(self.ends, default=0)

    @property
    def results(self) -> dict[int, Result]:
        """The result of each attempt, by its number."""
        return ended_attempts(self.ends, self.hosts)

    @property
    def earlier(self) -> Tally:
        """The number of failures and of disruptions before the latest attempt."""
        return tally_of(result for number, result in self.results.items() if number < self.latest)

    def another_follows(self, *, retries: int | None, preemptions: int | None) -> bool:
        """Return whether another attempt follows the latest one, whose hosts have all ended.

        True if it is not known how the latest attempt ended.
        """
        ends = self.ends.get(self.latest, ())
        if not ends or self.results[self.latest] == "unknown":
            return True
        return another_attempt(
            deciding(ends), self.earlier, retries=retries, preemptions=preemptions
        )

    def views(self, *, running: bool) -> tuple[AttemptView, ...]:
        """Return each attempt as users see it; the latest may still be *running*."""
        found = []
        for number, result in self.results.items():
            ends = self.ends[number]
            state = str(result)
            if running and number == self.latest and len(ends) < self.hosts:
                state = "running"
            message = deciding(ends).message if ends and state != "running" else ""
            found.append(AttemptView(number, self.hosts, state, message))
        return tuple(found)


def attempts_of(store: Store, record: JobRecord, verify: Verify) -> Attempts:
    """Return the attempts of the job that have a claim or a report in *store*.

    Records that *verify* refuses, or that cannot be read, are ignored.
    """
    return Attempts(record.hosts, _Search(store, record, verify).ends())


def unreported_attempts(
    store: Store, record: JobRecord, verify: Verify, reported: Collection[int]
) -> dict[int, float]:
    """Return when each attempt began, 0 if not known, that has a claim and is not among those that *reported*, in order.

    The last one of the job may be running; each earlier one ended without a report.
    """
    from kinetic_payload.records.claim import Claim
    from kinetic_payload.records.decode import decode

    search = _Search(store, record, verify)
    found = {}
    for number, (claims, _) in search.places().items():
        if number not in reported and (claim := search.claim(number, claims)) is not None:
            found[number] = 0.0
            with suppress(RecordError):
                found[number] = decode(Claim, claim, name="claim").claimed_at
    return found


def logged_attempts(store: Store, record: JobRecord, verify: Verify) -> list[int] | None:
    """Return the attempts whose log can be shown, in order; None if they are unknown, as after a clean-up.

    Logs are not signed, so unverified claims count here too: those of earlier versions were not signed,
    and a reader without the job's key cannot verify any.
    """
    search = _Search(store, record, verify)
    found = set(search.ends())
    unverified = search.unverified - found
    handle = JobObjects(record.job_id).handle
    # The clean-up of a member leaves the manifest of its batch.
    if not found and (record.group_id is not None or store.stat(handle) is None):
        return sorted(unverified) or None
    if unverified:
        if search.read_verified(handle) is None:
            found |= unverified
        elif all(search.claim(number, [0]) is None for number in sorted(found)):
            # Claims of earlier versions are not signed. Those versions made at most retries + 1 attempts.
            found |= {number for number in unverified if number <= record.retries + 1}
    return sorted(found)


class _Search:
    """Reads the claims and reports of a job."""

    def __init__(self, store: Store, record: JobRecord, verify: Verify) -> None:
        self._store = store
        self._names = JobObjects(record.job_id)
        self._hosts = record.hosts
        self._verify = verify
        self.unverified: set[int] = set()
        """Attempts with a claim that could not be verified."""

    def ends(self) -> dict[int, list[HostEnd]]:
        """Return, by the number of each attempt that has begun, how its hosts ended."""
        from kinetic_payload.threads import parallel_map

        found: dict[int, list[HostEnd]] = {}
        for number, (claims, reports) in self.places().items():
            read = partial(self._end, number)
            ends = parallel_map(read, reports, threads=self._store.concurrency)
            reported = [end for end in ends if end is not None]
            if reported or self.claim(number, claims) is not None:
                found[number] = reported
        return found

    def places(self) -> dict[int, tuple[list[int], list[int]]]:
        """Return, by attempt in order, the hosts that may have a claim and those that may have a report."""
        found: dict[int, tuple[list[int], list[int]]] = {}
        for info in self._store.list(self._names.attempts):
            for kind, parse in enumerate((claim_of, host_outcome_of)):
                place = parse(info.name, self._names.job_id)
                if place is not None and place[0] > 0 and place[1] < self._hosts:
                    found.setdefault(place[0], ([], []))[kind].append(place[1])
        return dict(sorted(found.items()))

    def claim(self, attempt: int, hosts: Iterable[int]) -> bytes | None:
        """Return the claim of *attempt* by the first of *hosts* that has one."""
        for host in hosts:
            if (data := self.read_verified(self._names.claim(attempt, host))) is not None:
                return data
            self.unverified.add(attempt)
        return None

    def read_verified(self, name: str) -> bytes | None:
        """Return the record *name*, or None if it is missing or refused."""
        try:
            data = read_record(self._store, name)
            self._verify(data, name)
        except (ObjectNotFoundError, RecordError, SignatureError):
            return None
        return data

    def _end(self, attempt: int, host: int) -> HostEnd | None:
        data = self.read_verified(self._names.host_outcome(attempt, host))
        try:
            return None if data is None else parse_host_end(host, data)
        except RecordError:
            return None


STARTING: Final = 60.0
"""Seconds after the record was written in which a job may not have a resource yet."""


def starting_or_gone(
    store: Store, record: JobRecord, verify: Verify, *, starting: float = STARTING
) -> Observation:
    """Return the observation of a job whose resource is certain not to exist: PENDING or NOT_FOUND.

    This is for backends that cannot announce a job before its resource exists. The job has begun if it
    has a claim or a report that *verify* accepts.
    """
    names = JobObjects(record.job_id)
    handle = store.stat(names.handle)
    if handle is None:
        return Observation(JobStatus.NOT_FOUND)
    attempts = attempts_of(store, record, verify)
    begun = attempts.latest > 0
    young = not begun and store.now() - handle.updated < starting
    # A batch has an outcome when it was stopped, or its values were collected.
    if young and store.stat(names.payload) is not None and store.stat(names.outcome) is None:
        return Observation(JobStatus.PENDING, "It was submitted, and is about to start.")
    reason = "It never started: its submit was interrupted."
    if begun:
        reason = f"Its resource was removed after attempt {attempts.latest} had begun."
    return Observation(JobStatus.NOT_FOUND, reason, attempts.views(running=False))
