"""The log of a job on a cluster: live from its pods, the rest from the bucket."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from kinetic.backends.backend import LogLine, never
from kinetic.jobs.stored_logs import attempt_separator, latest_lines, stored_lines
from kinetic_k8s.cluster.logs import PodLog
from kinetic_k8s.errors import ClusterUnreachableError
from kinetic_k8s.reading.attempts import PodView, views
from kinetic_payload.layout import JobObjects, is_end_marker
from kinetic_payload.printable import printable_log
from kinetic_payload.records.storage import read_verified

if TYPE_CHECKING:
    from kinetic.backends.gke.observer import Observer
    from kinetic.backends.gke.watch import JobWatches
    from kinetic_k8s.cluster.cluster import Cluster
    from kinetic_payload.records.job import JobRecord
    from kinetic_payload.records.signing import Signing
    from kinetic_payload.stores.store import Store

_LOOK_AGAIN: Final = 15.0
_REMEMBERED: Final = 3
"""Lines that are compared to find where a live log begins or broke off in the stored log."""


class JobLog:
    """The log of the job of *record*.

    The log in the bucket is complete, and a little behind. A pod's own log is live, loses its beginning
    once it is long, and is deleted with the pod.
    """

    def __init__(
        self,
        record: JobRecord,
        cluster: Cluster,
        store: Store,
        signer: Signing,
        observer: Observer,
        watches: JobWatches,
    ) -> None:
        self._record = record
        self._cluster = cluster
        self._store = store
        self._signer = signer
        self._stored_job = store, record, signer.verify
        self._observer = observer
        self._watches = watches
        self._whole = False
        """Whether the pod's log that was read last had its end marker."""

    def read(self, tail: int | None) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt as far as it is written."""
        found = views(self._observer.pods(self._record))
        pod = found[-1] if found and found[-1].started else None
        if pod is None or not pod.alive:
            yield from self._ended_log(pod, tail)
            return
        attempt = self._attempt_of(pod, 1)
        live = self._live(pod, attempt, follow=False, tail=tail)
        stored = self._stored(attempt, tail)
        if tail is not None:
            yield from max(list(live), list(stored), key=len)
            return
        first, other = next(live, None), next(stored, None)
        if first is None or (other is not None and first.text != other.text):
            yield from self._stored(attempt)  # The pod's own log has lost its beginning.
        else:
            yield first
            yield from live

    def follow(self, tail: int | None, stopped: Callable[[], bool] = never) -> Iterator[LogLine]:
        """Iterate over the log from the latest attempt on, as it is written, until the job ends.

        Stop earlier if *stopped* returns True; it is checked between two pods and after each line.

        Raises:
            ClusterUnreachableError: The cluster did not respond at the beginning; later it retries.
        """
        attempt, reached = 0, False
        known: set[str] = set()
        with self._watches.open([self._record.job_id]) as watch:
            while not stopped():
                try:
                    # Checked before the pods are listed: a last pod may start in between.
                    over = self._is_over()
                    found = views(self._observer.pods(self._record))
                except ClusterUnreachableError:
                    if not reached:  # Otherwise the user would see no output and no reason.
                        raise
                    watch.wait(_LOOK_AGAIN)
                    continue
                reached = True
                new = [pod for pod in found if pod.uid not in known]
                known.update(pod.uid for pod in new)
                for pod in new if attempt else new[-1:]:
                    for number, lines in self._attempts_to(pod, attempt, tail):
                        if attempt:
                            yield attempt_separator(*self._stored_job, attempt, number)
                        for line in lines:
                            yield line
                            if stopped():
                                return
                        attempt, tail = number, None
                if not new and not over:
                    watch.wait(_LOOK_AGAIN)
                elif not new:
                    if not attempt:
                        yield from self._stored(None, tail)
                    return

    def _is_over(self) -> bool:
        """Return whether there will be no further pod."""
        outcome = JobObjects(self._record.job_id).outcome
        if read_verified(self._store, self._signer, outcome) is not None:
            return True
        return self._observer.observe(self._record).status.terminal

    def _attempts_to(
        self, pod: PodView, before: int, tail: int | None
    ) -> Iterator[tuple[int, Iterator[LogLine]]]:
        """Iterate over the attempts after *before* up to that of *pod*, each with its lines."""
        live = self._live(pod, before + 1, follow=True, tail=tail)
        first = next(live, None)  # This waits for the pod to start.
        number = self._attempt_of(pod, before + 1)
        if first is None and self._observer.claimed_by(self._record, number) is None:
            return  # The attempt never began.
        if before:
            # Attempts whose pods were never listed.
            for missed in range(before + 1, number):
                yield missed, self._stored(missed)
        lines = self._with_stored_rest(first, live, number, tail)
        if not before and tail is None and first is not None:
            lines = chain(self._lost_beginning(pod, number), lines)
        yield number, lines

    def _lost_beginning(self, pod: PodView, attempt: int) -> Iterator[LogLine]:
        """Iterate over the stored lines that *pod* no longer has: the kubelet keeps about 10 MiB."""
        with PodLog(self._cluster, pod.name, follow=False) as log:
            head = [_printable(text) for text in islice(log, _REMEMBERED)]
        if head and is_end_marker(head[-1], self._record.job_id):
            return
        yield from islice(self._stored(attempt), _position_of(head, self._stored(attempt)))

    def _with_stored_rest(
        self, first: LogLine | None, live: Iterator[LogLine], attempt: int, tail: int | None
    ) -> Iterator[LogLine]:
        """Iterate over a pod's lines, and then over those that only the bucket has."""
        last: deque[str] = deque(maxlen=_REMEMBERED)
        for lines in ([first] if first is not None else [], live):
            for line in lines:
                last.append(line.text)
                yield LogLine(line.text, 0, attempt)
        if not self._whole:
            # The pod was killed, or its log was rotated away.
            yield from _lines_after(last, self._stored(attempt, None if last else tail))

    def _live(
        self, pod: PodView, attempt: int, *, follow: bool, tail: int | None
    ) -> Iterator[LogLine]:
        """Iterate over the log that *pod* itself has, without its end marker."""
        self._whole = False
        # One more line: the last one may be the end marker.
        last: deque[str] = deque(maxlen=tail)
        count = None if tail is None else tail + 1
        with PodLog(self._cluster, pod.name, follow=follow, tail=count) as log:
            for text in log:
                if is_end_marker(text, self._record.job_id):
                    self._whole = True
                    self._watches.wake(self._record.job_id)
                    break  # This is the last line; the stream itself ends a second later.
                elif follow or tail is None:
                    yield LogLine(_printable(text), 0, attempt)
                else:
                    last.append(_printable(text))
        yield from (LogLine(text, 0, attempt) for text in last)

    def _ended_log(self, pod: PodView | None, tail: int | None) -> Iterator[LogLine]:
        stored = self._stored(None, tail)
        first = next(stored, None)
        if first is not None:
            yield first
            yield from stored
        elif pod is not None:  # The log could not be stored.
            yield from self._live(pod, self._attempt_of(pod, 1), follow=False, tail=tail)

    def _stored(self, attempt: int | None, tail: int | None = None) -> Iterator[LogLine]:
        """Iterate over the stored lines of *attempt*, or of the latest one."""
        if attempt is None:
            return latest_lines(*self._stored_job, tail=tail)
        job_id = self._record.job_id
        return stored_lines(self._store, job_id, tail=tail, attempts=[attempt], most=1)

    def _attempt_of(self, pod: PodView, least: int) -> int:
        """Return the attempt of *pod*, *least* or a later one; if it has claimed none, the next free number."""
        number = least
        while self._observer.claimed_by(self._record, number) not in (None, pod.name):
            number += 1
        return number


def _printable(text: str) -> str:
    return printable_log(text.removesuffix("\r"))


def _position_of(head: Sequence[str], stored: Iterator[LogLine]) -> int:
    """Return how many lines of *stored* come before the lines *head*; 0 if *stored* does not have them."""
    window: deque[str] = deque(maxlen=len(head))
    for count, line in enumerate(stored, 1):
        window.append(line.text)
        if list(window) == list(head):
            return count - len(head)
    return 0


def _lines_after(last: Sequence[str], stored: Iterator[LogLine]) -> Iterator[LogLine]:
    """Iterate over the lines of *stored* after the lines *last*; over nothing if *stored* lacks these."""
    if not last:
        yield from stored
        return
    wanted = list(last)
    window: deque[str] = deque(maxlen=len(wanted))
    rest: list[LogLine] = []
    found = False
    for line in stored:
        window.append(line.text)
        if list(window) == wanted:
            rest, found = [], True
        elif found:
            rest.append(line)
    yield from rest
