"""The log of a job on a cluster: of all hosts, from attempt to attempt."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, Generic, Self, TypeVar

from kinetic.backends.backend import LogLine, never
from kinetic.backends.gke.host_log import Began, HostLog, LogSources
from kinetic.jobs.log_lines import interleaved, last_lines
from kinetic.jobs.outages import Outages, log_outages, patiently
from kinetic.jobs.stored_logs import (
    attempt_separator,
    known_attempts,
    latest_lines,
    stored_lines,
)
from kinetic.log_parts import joined
from kinetic_k8s.cluster.watch import Watch
from kinetic_k8s.reading.attempts import PodView, views

_LOOK_AGAIN: Final = 15.0
_IDLE: Final = 1.0
"""Seconds without a line after which a reader checks whether it was stopped."""


@dataclass(frozen=True)
class _Pods:
    """The hosts' pods, oldest first, and whether the job had ended before they were listed."""

    pods: Sequence[PodView]
    over: bool
    decided: int | None
    """The attempt that the job's outcome names, as in `LogSources`."""


@dataclass(frozen=True)
class _Ended:
    """The log of a pod has been read to its end."""

    uid: str


Generation = tuple[int, int, str, str]
_Event = LogLine | Began | _Ended | _Pods


class JobLog:
    """The log of a job, with the lines of its hosts in the order of their arrival."""

    def __init__(self, sources: LogSources) -> None:
        self._sources = sources
        self._record = sources.record

    def read(self, tail: int | None) -> Iterator[LogLine]:
        """Iterate over the log of the latest attempt as far as it is written."""
        started = [pod for pod in hosts_of(self._sources) if pod.started]
        generations = generations_of(self._record.hosts, started)
        latest = max(generations.values(), default=None)
        by_host = {pod.host: pod for pod in started if generations[pod.uid] == latest}
        pods = sorted(by_host.values(), key=lambda pod: pod.host)
        if not any(pod.alive for pod in pods):
            stored = latest_lines(*self._sources.stored_job, tail=tail)
            first = next(stored, None)
            if first is not None:
                yield first
                yield from stored
            elif pods:  # The log could not be stored.
                attempt = self._sources.attempt_of(pods[-1], 1)
                yield from interleaved([self._sources.live(pod, attempt, tail) for pod in pods])
            return
        attempt = self._sources.attempt_of(pods[-1], 1)
        parts = [
            self._host_now(by_host.get(host), attempt, host, tail)
            for host in range(self._record.hosts)
        ]
        if tail is None:
            yield from interleaved(parts)
        else:
            yield from last_lines(list(map(list, parts)), tail)

    def _host_now(
        self, pod: PodView | None, attempt: int, host: int, tail: int | None
    ) -> Iterator[LogLine]:
        """Iterate over the log of one host of the running attempt as far as it is written."""
        stored = self._sources.stored(attempt, host, tail)
        live = iter(()) if pod is None else self._sources.live(pod, attempt, tail)
        if tail is not None:
            now, kept = list(joined(live)), list(joined(stored))
            return iter(now if len(now) >= len(kept) else kept)
        first = next(live, None)
        if pod is None or first is None:
            return stored
        return chain(self._sources.lost(pod, attempt), [first], live)

    def follow(self, tail: int | None, stopped: Callable[[], bool] = never) -> Iterator[LogLine]:
        """Iterate over the log from the latest attempt on, as it is written, until the job ends.

        Stop earlier if *stopped* returns True; it is checked after each line, and every second without one.

        Raises:
            ClusterUnreachableError: The cluster did not respond at the beginning; later it retries.
        """
        arrivals: Arrivals[_Event] = Arrivals()
        with self._sources.watches.open([self._record]) as watch, arrivals:
            sources = self._sources.followed(lambda: arrivals.closed or stopped())
            following = _Following(sources, arrivals, watch, tail)
            shown: set[int] = set()
            while not stopped():
                item = arrivals.take(_IDLE)
                if isinstance(item, LogLine):
                    yield item
                elif isinstance(item, Began):
                    before, following.attempt = following.attempt, item.attempt
                    if before and item.attempt > before:
                        yield from _of_other_hosts(sources, before, shown)
                        yield from _missed(sources, before, range(before + 1, item.attempt))
                        yield attempt_separator(*sources.stored_job, item.attempt - 1, item.attempt)
                    if item.attempt > before:
                        shown.clear()
                    shown.add(item.host)
                elif item is not None and following.is_over_after(item):
                    if not following.attempt:
                        yield from latest_lines(*sources.stored_job, tail=tail)
                        return
                    yield from _of_other_hosts(sources, following.attempt, shown)
                    yield from _until(sources, following.attempt, following.decided)
                    return


def _of_other_hosts(sources: LogSources, attempt: int, shown: Set[int]) -> Iterator[LogLine]:
    """Iterate over the logs of the hosts of *attempt* whose pods were gone before they were listed."""
    for host in range(sources.record.hosts):
        if host not in shown:
            yield from sources.stored(attempt, host)


def _until(sources: LogSources, before: int, decided: int | None) -> Iterator[LogLine]:
    """Iterate over the logs of the attempts after *before* whose pods were gone before they were listed.

    *decided* is the last attempt; None if that is not known, for instance because the job was cleaned up.
    """
    if decided is not None and decided <= before:
        return
    known = known_attempts(*sources.stored_job)
    later = [n for n in known if n > before and (decided is None or n <= decided)]
    yield from _missed(sources, before, later)


def _missed(sources: LogSources, before: int, attempts: Iterable[int]) -> Iterator[LogLine]:
    job, record = sources.stored_job, sources.record
    for missed in attempts:
        yield attempt_separator(*job, before, missed)
        yield from stored_lines(sources.store, record.job_id, missed, most=record.hosts)
        before = missed


def hosts_of(sources: LogSources) -> list[PodView]:
    """Return the pods that run the job's function, oldest first."""
    found = views(sources.observer.pods(sources.record))
    return [pod for pod in found if pod.runs_function]


def generations_of(hosts: int, pods: Sequence[PodView]) -> dict[str, Generation]:
    """Return by uid of each pod a value that its attempt has alone, and that grows from attempt to attempt.

    After a JobSet was suspended and resumed, it counts no restart: a second pod of a host shows a new attempt.
    """
    if hosts == 1:
        return {pod.uid: (0, 0, pod.created, pod.uid) for pod in pods}
    found: dict[str, Generation] = {}
    resumed, restarts, seen = 0, 0, set[int]()
    for pod in sorted(pods, key=lambda pod: (pod.restarts or 0, pod.created, pod.host)):
        if (pod.restarts or 0) != restarts:
            resumed, restarts, seen = 0, pod.restarts or 0, set()
        # Outside of a JobSet, a host may be replaced while the others of its attempt run on.
        if pod.host in seen and pod.restarts is not None:
            resumed, seen = resumed + 1, set()
        seen.add(pod.host)
        found[pod.uid] = restarts, resumed, "", ""
    return found


class _Following:
    """The pods of a job that are followed: all hosts of one attempt, and then those of the next."""

    def __init__(
        self, sources: LogSources, arrivals: Arrivals[_Event], watch: Watch, tail: int | None
    ) -> None:
        self._sources = sources
        self._arrivals = arrivals
        self._watch = watch
        self._tail = tail
        self._hosts = sources.record.hosts
        self._known: dict[str, PodView] = {}
        """Every pod that was listed, by uid."""
        self._generations: dict[str, Generation] = {}
        self._waiting: list[PodView] = []
        """Pods of later attempts, and new ones of this attempt."""
        self._generation: Generation | None = None
        self._followed: set[int] = set()
        """The hosts of this attempt that are followed, or whose log has ended."""
        self._active: set[str] = set()
        """The uids of the pods that are followed."""
        self._wanted = threading.Event()
        self._wanted.set()
        self._before = 0
        """The attempt before this one."""
        self.attempt = 0
        """The latest attempt that has begun; 0 before the first one."""
        self.decided: int | None = None
        """The attempt that the job's outcome names, as in `LogSources`."""
        arrivals.start(self._list_pods, end=self._wanted.set)

    def is_over_after(self, event: _Ended | _Pods) -> bool:
        """Take *event* into account; return whether the log has ended."""
        if isinstance(event, _Ended):
            self._active.discard(event.uid)
            over = False
        else:
            self.decided = event.decided
            new = [pod for pod in event.pods if pod.uid not in self._known]
            self._known |= {pod.uid: pod for pod in new}
            self._generations = generations_of(self._hosts, list(self._known.values()))
            if new:
                # At first, only the latest attempt is followed.
                latest = max(self._generations[pod.uid] for pod in new)
                least = latest if self._generation is None else self._generation
                self._waiting += [pod for pod in new if self._generations[pod.uid] >= least]
            over = event.over and not new
        self._start_waiting()
        if self._active or self._waiting:
            over = False
        if len(self._followed) < self._hosts or not self._active:
            self._wanted.set()
            if isinstance(event, _Ended):
                self._watch.wake()
        return over

    def _start_waiting(self) -> None:
        """Follow the pods of this attempt; if none is followed any more, those of the next one."""
        if not self._waiting:
            return
        if not self._active:
            self._before = self.attempt
            self._generation = min(self._generations[pod.uid] for pod in self._waiting)
            self._followed = set()
        this = [pod for pod in self._waiting if self._generations[pod.uid] == self._generation]
        self._waiting = [pod for pod in self._waiting if pod not in this]
        tail = None if self._tail is None else -(-self._tail // self._hosts)
        for pod in this:
            log = HostLog(
                self._sources, pod, after=self._before, tail=None if self._before else tail
            )
            self._active.add(pod.uid)
            self._followed.add(pod.host)
            self._arrivals.start(partial(self._follow, pod, log), end=log.close)

    def _follow(self, pod: PodView, log: HostLog) -> None:
        for item in log:
            self._arrivals.put(item)
        self._arrivals.put(_Ended(pod.uid))

    def _list_pods(self) -> None:
        """List the pods whenever that is wanted and something may have changed."""
        outages = log_outages()
        while self._wanted.wait() and not self._arrivals.closed:
            self._wanted.clear()
            # At the beginning, an error is raised: the user would see no output and no reason.
            list_once = partial(self._list_once, outages)
            patiently(list_once, outages, stopped=lambda: self._arrivals.closed)

    def _list_once(self, outages: Outages) -> None:
        # Checked before the pods are listed: a last pod may start in between.
        decided = self._sources.decided
        observe = self._sources.observer.observe
        over = decided is not None or observe(self._sources.record).status.terminal
        self._arrivals.put(_Pods(hosts_of(self._sources), over, decided))
        outages.worked()
        self._watch.wait(_LOOK_AGAIN)


Item = TypeVar("Item")

_MOST_WAITING: Final = 1000
"""Items that wait to be taken; then the threads that put them wait."""
_CLOSED_WITHIN: Final = 0.5
"""Seconds until a thread notices that the block has ended."""


class Arrivals(Generic[Item]):
    """A bounded queue, and the threads that fill it. Use it in a `with` block, which ends them.

    A thread that fails puts its exception, which `take` raises.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[Item | Exception] = queue.Queue(_MOST_WAITING)
        self._closed = threading.Event()
        self._at_close: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for end in self._at_close:
            end()

    @property
    def closed(self) -> bool:
        """Whether the block has ended."""
        return self._closed.is_set()

    def start(self, run: Callable[[], object], *, end: Callable[[], object]) -> None:
        """Call *run* in a thread; at the end of the block *end* is called, which must make it return."""
        self._at_close.append(end)

        def guarded() -> None:
            try:
                run()
            except Exception as error:  # noqa: BLE001 - `take` raises it
                self.put(error)

        threading.Thread(target=guarded, name="kinetic-log", daemon=True).start()

    def put(self, item: Item | Exception) -> None:
        """Add an item; wait while there are too many. After the block, items are dropped."""
        while not self.closed:
            try:
                self._queue.put(item, timeout=_CLOSED_WITHIN)
            except queue.Full:
                continue
            return

    def take(self, timeout: float) -> Item | None:
        """Return the next item, or None if none arrives in *timeout* seconds.

        Raises:
            Exception: A thread failed.
        """
        try:
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, Exception):
            raise item
        return item
