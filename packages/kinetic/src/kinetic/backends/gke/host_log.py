"""The log of one host in one attempt: live from its pod, and what the pod lacks from the bucket."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from kinetic.backends.backend import LogLine
from kinetic.jobs.log_lines import parsed
from kinetic.jobs.outages import Outages, lasting, log_outages, patiently
from kinetic.jobs.services import LOOK
from kinetic.jobs.stored_logs import follow_stored_host, stored_lines
from kinetic_k8s.cluster.logs import PodLog
from kinetic_k8s.errors import ClusterError
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import StoreError
from kinetic_payload.layout import JobObjects, is_end_marker
from kinetic_payload.printable import printable_log
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.storage import read_verified

if TYPE_CHECKING:
    from kinetic.backends.gke.observation import JobWatches, Observer
    from kinetic.jobs.attempts import Verify
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.stores.store import Store

T = TypeVar("T")

_HEAD: Final = 100
"""Lines at the beginning of a pod's log that are looked for in the bucket."""
_LAST: Final = 20
"""Lines after which a log is continued from the bucket."""
_RECENT: Final = 10_000
"""Lines that a runner may print before it stores them: those of some seconds."""
_OWN: Final = "[kinetic] "
"""How lines of the runner itself begin, of which the bucket lacks the first ones."""
_POLL: Final = 2.0
"""Seconds between two looks for new lines in the bucket."""
BROKEN: Final = "[kinetic] The live log broke off here. It goes on from the bucket."
MISSING: Final = "[kinetic] The live log broke off here. Lines may be missing."


@dataclass(frozen=True, kw_only=True)
class LogSources:
    """Where the log of the job of *record* is read from.

    The log in the bucket is complete, and a few seconds behind: it decides. A pod's own log is live, loses its
    beginning once it is long, and is deleted with the pod.
    """

    record: JobRecord
    observer: Observer
    watches: JobWatches
    store: Store
    outages: Outages = field(default_factory=log_outages)

    @property
    def cluster(self) -> ApiServer:
        """The job's cluster."""
        return self.observer.cluster

    def followed(self, stopped: Callable[[], bool]) -> LogSources:
        """Return the sources with a store that is read through outages, until *stopped*."""
        return replace(self, store=lasting(self.store, self.outages, stopped=stopped))

    @property
    def stored_job(self) -> tuple[Store, JobRecord, Verify]:
        """Where the stored log is, of which job, and how its records are verified."""
        return self.store, self.record, self.observer.signer.verify

    @property
    def decided(self) -> int | None:
        """The attempt that the job's final outcome names, 0 if it names none; None without an outcome."""
        outcome = read_verified(
            self.store, self.observer.signer, JobObjects(self.record.job_id).outcome
        )
        if outcome is None:
            return None
        attempt = fields_of(outcome).get("attempt")
        return attempt if isinstance(attempt, int) else 0

    def attempt_of(self, pod: PodView, least: int) -> int:
        """Return the attempt of *pod*, *least* or a later one; if it has claimed none, the next free number.

        A claim names its pod. A job on one host has one claim for each pod, except for the leader of a LeaderWorkerSet,
        which claims several attempts. There, the latest claim of the host is that of its latest pod.
        """
        own_name = self.record.hosts == 1 and self.record.workload != "LeaderWorkerSet"
        number, found = max(least, (pod.restarts or 0) + 1 if self.record.hosts > 1 else 1), 0
        while (
            claimant := self.observer.claimed_by(self.record.job_id, number, pod.host)
        ) is not None:
            if own_name and claimant == pod.name:
                return number
            found = number
            number += 1
        return number if own_name else found or number

    def stored(self, attempt: int, host: int, tail: int | None = None) -> Iterator[LogLine]:
        """Iterate over the stored lines of *host* in *attempt*."""
        return stored_lines(
            self.store,
            self.record.job_id,
            attempt,
            tail=tail,
            most=self.record.hosts,
            host=host,
        )

    def live(self, pod: PodView, attempt: int, tail: int | None = None) -> Iterator[LogLine]:
        """Iterate over the lines that *pod* itself has now, of *attempt*, without its end marker."""
        # One more line: the last one may be the end marker.
        count = None if tail is None else tail + 1
        with PodLog(self.cluster, pod.name, follow=False, tail=count) as log:
            own = takewhile(lambda text: not self.is_end(text), log)
            for text in own if tail is None else deque(own, tail):
                yield shown(text, pod.host, attempt)

    def lost(self, pod: PodView, attempt: int) -> Iterator[LogLine]:
        """Iterate over the stored lines that *pod* no longer has: the kubelet keeps about 10 MiB."""
        head = [line.text for line in islice(self.live(pod, attempt), _HEAD)]
        stored = partial(self.stored, attempt, pod.host)
        before = _position_of(head, stored()) or _position_of(head[:3], stored())
        return islice(stored(), before)

    def is_end(self, text: str) -> bool:
        """Return whether a line of a pod is its end marker."""
        return is_end_marker(text, self.record.job_id)


@dataclass(frozen=True)
class Began:
    """An attempt has begun on a host: its lines follow."""

    attempt: int
    host: int


class HostLog:
    """Follows the log of the host that *pod* runs. Iterate once; `close` ends the iteration, from any thread.

    *after* is the last attempt that was followed before; 0 if there is none. *tail* is the number of lines
    to begin with.
    """

    def __init__(self, sources: LogSources, pod: PodView, *, after: int, tail: int | None) -> None:
        self._sources = sources
        self._pod = pod
        self._after = after
        self._tail = tail
        # One more line: the last one may be the end marker.
        count = None if tail is None else tail + 1
        self._log = PodLog(sources.cluster, pod.name, uid=pod.uid, tail=count)
        self._closed = threading.Event()
        self._whole = False
        """Whether the pod's log had its end marker."""

    def close(self) -> None:
        """End the iteration."""
        self._closed.set()
        self._log.close()

    def __iter__(self) -> Iterator[LogLine | Began]:
        """Wait for the pod to start, and iterate over its lines, to the last line of its attempt.

        Iterate over nothing if the pod does not begin an attempt.
        """
        sources, pod = self._sources, self._pod
        live = self._live()
        first = next(live, None)  # This waits for the pod to start.
        attempt = self._patiently(lambda: sources.attempt_of(pod, self._after + 1))
        has_begun = partial(sources.observer.claimed_by, sources.record.job_id, attempt, pod.host)
        if first is None and self._patiently(has_begun) is None:
            return
        yield Began(attempt, pod.host)
        if first is None:
            yield from sources.stored(attempt, pod.host, self._tail)
            return
        if self._tail is None and not self._after:
            yield from self._patiently(lambda: sources.lost(pod, attempt))
        recent: deque[str] = deque(maxlen=_RECENT)
        for line in chain([first], live):
            recent.append(line.text)
            yield replace(line, attempt=attempt)
        if not self._whole and not self._closed.is_set():
            last = [text for text in recent if not text.startswith(_OWN)]
            yield from self._rest(attempt, last)

    def _patiently(self, ask: Callable[[], T]) -> T:
        return patiently(ask, self._sources.outages, stopped=self._closed.is_set)

    def _live(self) -> Iterator[LogLine]:
        """Iterate over the pod's own lines until its log ends or breaks."""
        with self._log as log:
            for text in log:
                if log.broken:
                    return
                if self._sources.is_end(text):
                    self._whole = True
                    self._sources.watches.wake(self._sources.record.job_id)
                    return  # This is the last line; the stream itself ends a second later.
                yield shown(text, self._pod.host)

    def _rest(self, attempt: int, recent: list[str]) -> Iterator[LogLine]:
        """Iterate over the lines of the attempt that only the bucket has: all after the *recent* ones.

        If the last lines occur more than once, lines may repeat; none is left out.
        """
        last = recent[-_LAST:]
        window: deque[str] = deque(maxlen=len(last))
        found, reported = not last, False
        for line in follow_stored_host(
            self._sources.store,
            self._sources.record.job_id,
            attempt,
            self._pod.host,
            ended=self._has_ended,
            pause=lambda: self._closed.wait(_POLL),
        ):
            if found:
                if not reported:
                    yield LogLine(BROKEN, self._pod.host, attempt, stream="stderr")
                reported = True
                yield line
            elif not line.text.startswith(_OWN):
                window.append(line.text)
                found = list(window) == last
        # The last seconds of a pod that was killed are not stored.
        stored, size = list(window), len(window)
        starts = range(len(recent) - size + 1)
        if not found and not any(recent[at : at + size] == stored for at in starts):
            yield LogLine(MISSING, self._pod.host, attempt, stream="stderr")

    def _has_ended(self) -> bool:
        """Return whether the host writes nothing more to the bucket."""
        if self._closed.is_set():
            return True
        try:
            if self._sources.decided is not None:
                return True
            found = self._sources.cluster.within(LOOK).get("Pod", self._pod.name)
        except (ClusterError, StoreError):
            return False
        if found is None or found["metadata"].get("uid") != self._pod.uid:
            return True
        return not PodView(found).alive


def shown(text: str, host: int, attempt: int = 1) -> LogLine:
    """Return a line of a log so that it can be printed."""
    line = parsed(text, host, attempt)
    return replace(line, text=printable_log(line.text))


def _position_of(head: Sequence[str], stored: Iterator[LogLine]) -> int:
    """Return how many lines of *stored* come before the lines *head*; 0 if *stored* does not have them."""
    window: deque[str] = deque(maxlen=len(head))
    for count, line in enumerate(stored if head else (), 1):
        window.append(line.text)
        if list(window) == list(head):
            return count - len(head)
    return 0
