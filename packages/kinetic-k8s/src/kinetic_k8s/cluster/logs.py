"""The log of one container, followed live to its last line."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from kinetic_k8s.cluster.watch import SETTLING, Watch, Watched
from kinetic_k8s.errors import (
    ClusterUnreachableError,
    LogNotReadyError,
    NotAuthenticatedError,
    NotPermittedError,
    ObjectGoneError,
)
from kinetic_k8s.manifests.names import CONTAINER
from kinetic_k8s.reading.attempts import PodView
from kinetic_payload.backoff import Backoff

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer

log = logging.getLogger("kinetic")

OVERLAP: Final = timedelta(seconds=2)
"""How far before the last line a new request begins.

The server cuts times to whole seconds, and lines of stdout and stderr may come out of order.
"""
KEPT: Final = timedelta(seconds=5)
"""How long lines are remembered, to recognize repeated ones."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
_LOOK_AGAIN: Final = 60.0
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_SECOND: Final = len("2026-11-22T10:15:00")


class PodLog:
    """The lines of one container, without their timestamps. Iterate once, in a `with` block.

        with PodLog(cluster, pod) as log:
            for line in log:
                print(line)

    With *follow*, the iteration waits for the container to start, survives broken connections, and ends
    after the last line once the container has ended or its pod is gone. With *uid*, a pod with another uid
    counts as gone, although it has the same name. Lines that the kubelet has already removed are missing; it
    keeps about 10 MiB. `broken` tells whether lines may be missing before the latest one.
    """

    def __init__(
        self,
        cluster: ApiServer,
        pod: str,
        *,
        uid: str | None = None,
        follow: bool = True,
        tail: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._uid = uid
        self._follow = follow
        self._tail = tail
        self._clock = clock
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._end_request: Callable[[], None] | None = None
        self._seen = _Seen()

    @property
    def broken(self) -> bool:
        """Whether the log, after a broken connection, no longer had the line that had been read last."""
        return self._seen.broken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration at once, from any thread."""
        self._closed.set()
        with self._lock:
            if self._end_request is not None:
                self._end_request()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the lines.

        An expired login does not end it: it is logged once, and the lines continue after a login.

        Raises:
            ClusterUnreachableError: Without *follow*: the server did not respond.
            NotAuthenticatedError, NotPermittedError: The server has rejected the request from the beginning,
                or a permission is missing, for longer than a server takes to start.
        """
        if not self._follow:
            with suppress(LogNotReadyError, ObjectGoneError):
                yield from self._lines(follow=False)
            return
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        rejected: float | None = None
        accepted = False
        while not self._closed.is_set():
            try:
                if not self._started():
                    return
                accepted = True
                for line in self._lines(follow=True):
                    rejected = None
                    backoff.reset()
                    yield line
                if (pod := self._look()) is None:
                    return
                if not pod.alive:
                    yield from self._lines(follow=False)
                    return
            except ObjectGoneError:
                return
            except LogNotReadyError:
                if (pod := self._look()) is None or not pod.alive:
                    return
            except ClusterUnreachableError:
                pass
            except (NotAuthenticatedError, NotPermittedError) as error:
                first = rejected is None
                rejected = self._clock() if rejected is None else rejected
                if accepted and isinstance(error, NotAuthenticatedError):
                    if first:  # Those who wait for the job report it, too.
                        log.warning("%s The log continues after that.", error)
                elif self._clock() - rejected > SETTLING:
                    raise
            self._closed.wait(backoff.next())

    def _lines(self, *, follow: bool) -> Iterator[str]:
        """Iterate over the lines of one request that have not been seen yet."""
        since = self._seen.since()
        self._seen.begin(again=since is not None)
        with (
            self._cluster.log(
                self._pod,
                CONTAINER,
                follow=follow,
                since=since,
                tail=self._tail if since is None else None,
            ) as stream,
            self._closing_with(stream.close),
        ):
            for line in stream:
                if self._seen.is_new(line):
                    yield line.partition(" ")[2]

    def _started(self) -> bool:
        """Wait until the container has started; return False if it never will."""
        if (pod := self._look()) is None or not pod.alive or pod.started:
            return pod is not None
        watched = Watched(kind="Pod", fields=f"metadata.name={self._pod}")
        with Watch(self._cluster, [watched]) as watch, self._closing_with(watch.wake):
            while not self._closed.is_set():
                watch.wait(_LOOK_AGAIN)
                if (pod := self._look()) is None or not pod.alive or pod.started:
                    return pod is not None
        return False

    def _look(self) -> PodView | None:
        found = self._cluster.get("Pod", self._pod)
        if found is None:
            return None
        pod = PodView(found)
        return pod if self._uid in (None, pod.uid) else None

    @contextmanager
    def _closing_with(self, end: Callable[[], None]) -> Iterator[None]:
        """Let `close` call *end* within the block."""
        with self._lock:
            self._end_request = end
            if self._closed.is_set():  # `close` was called before this block began.
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end_request = None


class _Seen:
    """The lines of the last seconds, remembered to recognize repeated ones."""

    def __init__(self) -> None:
        self._latest = ""
        """The time of the latest line, as the server writes it."""
        self._lines: dict[str, set[str]] = {}
        """Second of a line's time → lines."""
        self._last = ""
        """The line that was read last."""
        self._again = False
        """Whether the current request begins in the middle of the log, so that lines repeat."""
        self._joined = True
        """Whether the current request has returned the line that was read last before it."""
        self.broken = False
        """Whether a request did not return that line before a new one."""

    def begin(self, *, again: bool) -> None:
        """Begin a request; *again*: it begins in the middle of the log."""
        self._again, self._joined = again, not again

    def since(self) -> str | None:
        """Return the time where the next request begins; None: at the first line."""
        if not self._latest:
            return None
        return (datetime.fromisoformat(self._latest) - OVERLAP).isoformat()

    def is_new(self, line: str) -> bool:
        """Remember *line*; return whether it is a new line of the log."""
        written = line.partition(" ")[0]
        second = written[:_SECOND]
        if second not in self._lines:
            if not _TIME.fullmatch(written):  # The kubelet reports that it no longer has the log.
                return False
            # No request returns lines again that are so much older.
            oldest = (datetime.fromisoformat(second) - KEPT).isoformat()
            self._lines = {each: kept for each, kept in self._lines.items() if each >= oldest}
        lines = self._lines.setdefault(second, set())
        if self._again and line in lines:
            self._joined = self._joined or line == self._last
            return False
        self.broken = self.broken or not self._joined
        self._joined = True
        lines.add(line)
        self._last = line
        self._latest = max(self._latest, written)
        return True
