"""The log of one host in one attempt: live from its pod, and what the pod lacks from the bucket."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from kinetic.backends.backend import LogLine
from kinetic.backends.gke.timeouts import with_short_timeout
from kinetic.jobs.stored_logs import follow_stored_host, stored_lines
from kinetic.user_warnings import Logins
from kinetic.waiting import Backoff
from kinetic_k8s.cluster.logs import PodLog
from kinetic_k8s.cluster.watch import SETTLING
from kinetic_k8s.errors import ClusterError, NotPermittedError
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.errors import (
    KineticError,
    LoginRequiredError,
    StoreError,
    UnavailableError,
)
from kinetic_payload.layout import JobObjects, is_end_marker
from kinetic_payload.printable import printable_log
from kinetic_payload.records.encode import fields_of
from kinetic_payload.records.storage import read_verified

if TYPE_CHECKING:
    from kinetic.backends.gke.observer import Observer
    from kinetic.backends.gke.watch import JobWatches
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.records.signing import Signing
    from kinetic_payload.stores.store import Store

log = logging.getLogger("kinetic")

T = TypeVar("T")

_REMEMBERED: Final = 3
"""Lines that are compared to find where a live log begins or broke off in the stored log."""
COMPARED: Final = 100
"""Lines at the beginning of a pod's log that are compared with the log in the bucket: a few lines may repeat."""
_POLL: Final = 2.0
"""Seconds between two looks for new lines in the bucket."""
BROKEN: Final = "[kinetic] The live log broke off here. It goes on from the bucket."
MISSING: Final = "[kinetic] The live log broke off here. Lines may be missing."


class Patience:
    """Decides whether the reader of a live log tries again after an error, as the wait for its job does.

    An expired login is logged if it is new to *logins*. It and an outage pass only after a first success: a log does not begin
    without access. A missing permission passes for as long as a server takes to start.
    """

    def __init__(
        self,
        logins: Logins,
        *,
        reached: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logins = logins
        self._reached = reached
        self._clock = clock
        self._rejected: float | None = None
        self._backoff = Backoff(0.5, 5.0)

    def reach(self) -> None:
        """Note the first success."""
        self._reached = True

    def reset(self) -> None:
        """Note that everything works again."""
        self._rejected = None
        self._backoff.reset()

    def bears(self, error: KineticError) -> bool:
        """Return whether to try again after *error*."""
        if isinstance(error, NotPermittedError):
            now = self._clock()
            self._rejected = now if self._rejected is None else self._rejected
            return now - self._rejected <= SETTLING
        if not isinstance(error, StoreError | UnavailableError | LoginRequiredError):
            return False
        login = error.hint or error.message
        if isinstance(error, LoginRequiredError) and self._reached and self._logins.is_new(login):
            log.warning("%s The log continues after that.", error)
        return self._reached

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return self._backoff.next()


@dataclass(frozen=True, kw_only=True)
class LogSources:
    """Where the log of the job of *record* is read from.

    The log in the bucket is complete, and a little behind. A pod's own log is live, loses its beginning
    once it is long, and is deleted with the pod.
    """

    record: JobRecord
    cluster: ApiServer
    store: Store
    signer: Signing
    observer: Observer
    watches: JobWatches
    logins: Logins = field(default_factory=Logins)
    """Those that were asked for: the log of a call is not shown, and the wait beside it asks for itself."""

    @property
    def decided(self) -> int | None:
        """The attempt that the job's final outcome names, 0 if it names none; None without an outcome."""
        outcome = read_verified(self.store, self.signer, JobObjects(self.record.job_id).outcome)
        if outcome is None:
            return None
        attempt = fields_of(outcome).get("attempt")
        return attempt if isinstance(attempt, int) else 0

    def attempt_of(self, pod: PodView, least: int) -> int:
        """Return the attempt of *pod*, *least* or a later one; if it has claimed none, the next free number.

        A claim names its pod. Only a Job on one host has one claim for each pod: the leader of a LeaderWorkerSet claims
        several attempts. There, the latest claim of the host is that of its latest pod.
        """
        own_name = self.record.hosts == 1 and self.record.workload in ("Job", None)
        number, found = max(least, (pod.restarts or 0) + 1 if self.record.hosts > 1 else 1), 0
        while (claimant := self.observer.claimed_by(self.record, number, pod.host)) is not None:
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
            tail=tail,
            attempts=[attempt],
            most=self.record.hosts,
            host=host,
        )

    def live(self, pod: PodView, tail: int | None = None) -> Iterator[str]:
        """Iterate over the lines that *pod* itself has now, without its end marker."""
        # One more line: the last one may be the end marker.
        last: deque[str] = deque(maxlen=tail)
        count = None if tail is None else tail + 1
        with PodLog(self.cluster, pod.name, follow=False, tail=count) as log:
            for text in log:
                if is_end_marker(text, self.record.job_id):
                    break
                if tail is None:
                    yield shown(text)
                else:
                    last.append(shown(text))
        yield from last


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
        live = self._live()
        first = next(live, None)  # This waits for the pod to start.
        attempt = self._patiently(lambda: self._sources.attempt_of(self._pod, self._after + 1))
        if attempt is None:
            return
        host = self._pod.host
        if first is None and not self._patiently(lambda: self._has_begun(attempt)):
            return
        yield Began(attempt, host)
        if first is None:
            yield from self._sources.stored(attempt, host, self._tail)
            return
        count: int | None = None
        """The lines of the attempt so far; None if they were not counted from its beginning."""
        if self._tail is None:
            count = 0
            if not self._after:
                count = self._patiently(lambda: self._lost_beginning(attempt)) or 0
            yield from islice(self._sources.stored(attempt, host), count)
        last: deque[str] = deque(maxlen=_REMEMBERED)
        begin: list[str] = []
        for text in chain([first], live):
            last.append(text)
            if len(begin) < COMPARED:
                begin.append(text)
            count = None if count is None else count + 1
            yield LogLine(text, host, attempt)
        if not self._whole and not self._closed.is_set():
            if count is not None:
                count -= self._patiently(lambda: self._own_lines(attempt, begin)) or 0
            yield from self._rest(attempt, list(last), count)

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """Return what *ask* returns, once an outage or an expired login has passed; None after `close`."""
        patience = Patience(self._sources.logins, reached=True)
        while not self._closed.is_set():
            try:
                return ask()
            except KineticError as error:
                if not patience.bears(error):
                    raise
            self._closed.wait(patience.pause)
        return None

    def _has_begun(self, attempt: int) -> bool:
        claimant = self._sources.observer.claimed_by(self._sources.record, attempt, self._pod.host)
        return claimant is not None

    def _live(self) -> Iterator[str]:
        """Iterate over the pod's own lines until its log ends or breaks."""
        with self._log as log:
            for text in log:
                if log.broken:
                    return
                if is_end_marker(text, self._sources.record.job_id):
                    self._whole = True
                    self._sources.watches.wake(self._sources.record.job_id)
                    return  # This is the last line; the stream itself ends a second later.
                yield shown(text)

    def _lost_beginning(self, attempt: int) -> int:
        """Return how many stored lines the pod no longer has: the kubelet keeps about 10 MiB."""
        with PodLog(self._sources.cluster, self._pod.name, follow=False) as log:
            head = [shown(text) for text in islice(log, COMPARED)]
        job_id, host = self._sources.record.job_id, self._pod.host
        own = list(takewhile(lambda text: not is_end_marker(text, job_id), head))
        stored = partial(self._sources.stored, attempt, host)
        if len(own) < len(head):  # The bucket has all lines, and the pod has the last ones.
            return begin_of_end(own, stored())
        return position_of(own, stored()) or position_of(own[:_REMEMBERED], stored())

    def _own_lines(self, attempt: int, begin: Sequence[str]) -> int:
        """Return how many of the lines *begin*, the first that the pod has, precede the log in the bucket.

        The runner prints them before it can store any.
        """
        stored = self._sources.stored(attempt, self._pod.host)
        head = [line.text for line in islice(stored, _REMEMBERED)]
        return position_of(head, (LogLine(text) for text in begin)) if head else 0

    def _rest(self, attempt: int, last: Sequence[str], count: int | None) -> Iterator[LogLine]:
        """Iterate over the lines of the attempt that only the bucket has: all after the lines *last*."""
        host = self._pod.host
        position = self._patiently(
            lambda: position_after(last, count, self._sources.stored(attempt, host))
        )
        lines = follow_stored_host(
            self._sources.store,
            self._sources.record.job_id,
            attempt,
            host,
            ended=self._has_ended,
            pause=lambda: self._closed.wait(_POLL),
        )
        if position is None and (count is not None or not skip_past(last, lines)):
            yield LogLine(MISSING, host, attempt)
            return
        reported = False
        for line in islice(lines, position or 0, None):
            if not reported:
                yield LogLine(BROKEN, host, attempt)
            reported = True
            yield line

    def _has_ended(self) -> bool:
        """Return whether the host writes nothing more to the bucket."""
        if self._closed.is_set():
            return True
        try:
            if self._sources.decided is not None:
                return True
            found = with_short_timeout(self._sources.cluster).get("Pod", self._pod.name)
        except (ClusterError, StoreError):
            return False
        if found is None or found["metadata"].get("uid") != self._pod.uid:
            return True
        return not PodView(found).alive


def shown(text: str) -> str:
    """Return a line of a log so that it can be printed."""
    return printable_log(text.removesuffix("\r"))


def position_of(head: Sequence[str], stored: Iterator[LogLine]) -> int:
    """Return how many lines of *stored* come before the lines *head*; 0 if *stored* does not have them."""
    window: deque[str] = deque(maxlen=len(head))
    for count, line in enumerate(stored if head else (), 1):
        window.append(line.text)
        if list(window) == list(head):
            return count - len(head)
    return 0


def begin_of_end(end: Sequence[str], stored: Iterator[LogLine]) -> int:
    """Return how many lines of *stored* come before its last lines *end*; 0 if it has other last lines."""
    window: deque[str] = deque(maxlen=len(end))
    count = 0
    for line in stored:
        window.append(line.text)
        count += 1
    return count - len(end) if list(window) == list(end) else 0


def skip_past(last: Sequence[str], lines: Iterator[LogLine]) -> bool:
    """Take *lines* up to and with the lines *last*; return whether they came."""
    window: deque[str] = deque(maxlen=len(last))
    for line in lines:
        window.append(line.text)
        if list(window) == list(last):
            return True
    return False


def position_after(last: Sequence[str], count: int | None, stored: Iterator[LogLine]) -> int | None:
    """Return how many lines of *stored* were read already; None if that is unknown.

    *last* are the last lines that were read, and *count* is the number of all of them, if it is known.
    Lines may repeat, so the place nearest to *count* is preferred, and the last one if *count* is not known.
    """
    window: deque[str] = deque(maxlen=len(last))
    found, total = None, 0
    for total, line in enumerate(stored, 1):
        window.append(line.text)
        nearer = count is None or found is None or abs(total - count) < abs(found - count)
        if nearer and list(window) == list(last):
            found = total
    if found is None and count is not None and total < count:
        return count  # The log in the bucket is behind.
    return found
