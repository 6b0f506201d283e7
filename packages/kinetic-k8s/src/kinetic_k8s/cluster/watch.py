"""A watch on objects of a cluster: it reports that something changed, not what.

Each kind has a thread with one request, which lists and watches at once. Whenever a request ends, for
whatever reason, the next one begins with a fresh list. A watch that continues from an old resource
version might report nothing for ever, if the server was restored to an earlier state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kinetic_k8s.errors import (
    ClusterError,
    ClusterUnreachableError,
    InvalidManifestError,
    KindNotServedError,
    NotAuthenticatedError,
    NotPermittedError,
)
from kinetic_payload.backoff import Backoff
from kinetic_payload.errors import KineticError

if TYPE_CHECKING:
    from kinetic_k8s.cluster.client import ApiServer
    from kinetic_k8s.cluster.streams import Events

SETTLING: Final = 10.0
"""Seconds for which a rejection is retried: a server that has just started rejects every request."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0
_LONGEST_PAUSE_BETWEEN_ENDS: Final = 5.0
"""The longest pause after a request that returned the objects and then ended: changes are noticed that late."""
_STEADY: Final = 10.0
"""Seconds that a request lasts if nothing cuts off each one."""
_LIST_END: Final = "k8s.io/initial-events-end"
_LASTING: Final = (NotAuthenticatedError, NotPermittedError, KindNotServedError)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Objects of one kind that match selectors."""

    kind: str
    labels: str = ""
    fields: str = ""


class Watch:
    """Wait until something may have changed. Use it in a `with` block, which ends its requests.

        with Watch(cluster, [Watched(kind="Pod", labels=of_job(job_id))]) as watch:
            while not done(look()):
                watch.wait(60)

    The first `wait` returns as soon as the objects are known, because they may have changed since the
    caller last looked.
    """

    def __init__(
        self,
        cluster: ApiServer,
        watched: Sequence[Watched],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = threading.Condition()
        self._changes = 0
        self._seen = 0
        self._closed = False
        self._followers = [_Follower(cluster, each, self.wake, clock) for each in watched]

    def __enter__(self) -> Self:
        for follower in self._followers:
            threading.Thread(target=follower.run, name="kinetic-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Return True as soon as something may have changed since the last call; False after *timeout*.

        Raises:
            ClusterError: The server has rejected the watch for longer than it takes to start:
                `NotAuthenticatedError`, `NotPermittedError` or `KindNotServedError`. A later call waits
                again, and returns once the server accepts the watch.
        """
        with self._changed:
            changed = self._changed.wait_for(
                lambda: self._closed or self._changes > self._seen, timeout
            )
            self._seen = self._changes
        for follower in self._followers:
            if (error := follower.take_error()) is not None:
                raise error
        return changed

    def wake(self) -> None:
        """Make the current or next call of `wait` return at once; from any thread."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the requests at once; `wait` returns at once from now on."""
        self._closed = True
        for follower in self._followers:
            follower.close()
        self.wake()


class _Follower:
    """Send one watch request after another for one kind, until closed."""

    def __init__(
        self,
        cluster: ApiServer,
        watched: Watched,
        report: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._watched = watched
        self._report = report
        self._clock = clock
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._stream: Events | None = None
        self._error: KineticError | None = None
        self._known: dict[str, str] | None = None
        """The versions of the objects, by their uid; None before they are known."""
        self._marked = True
        """Whether the server marks the end of the list with which a watch begins."""
        self._settled = False
        """Whether the current request has returned the objects."""

    def close(self) -> None:
        """End the current request, from another thread."""
        self._closed.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    def take_error(self) -> KineticError | None:
        """Return and clear the pending error; None if there is none."""
        error, self._error = self._error, None
        return error

    def run(self) -> None:
        """Follow until closed."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        rejected: float | None = None
        while not self._closed.is_set():
            self._settled = False
            begun = self._clock()
            error = self._follow()
            longest = _LONGEST_PAUSE
            if self._settled:
                rejected = None
                longest = _LONGEST_PAUSE_BETWEEN_ENDS
                if self._clock() - begun >= _STEADY:
                    backoff.reset()
            if isinstance(error, InvalidManifestError) and self._marked:
                self._marked = False  # A server before 1.34 may not support it.
                continue
            if isinstance(error, ClusterError) and not isinstance(error, _LASTING):
                rejected = None
            elif error is not None:
                rejected = self._clock() if rejected is None else rejected
                if self._clock() - rejected > SETTLING:
                    self._error = error
                    self._report()
            asked = error.retry_after if isinstance(error, ClusterUnreachableError) else 0.0
            self._closed.wait(max(min(backoff.next(), longest), asked))

    def _follow(self) -> KineticError | None:
        """Follow one request to its end; return the error that ended it, or None."""
        watched = self._watched
        try:
            with self._cluster.watch(
                watched.kind, labels=watched.labels, fields=watched.fields, marked=self._marked
            ) as stream:
                with self._lock:
                    self._stream = stream
                # `close` may have been called before the stream was opened.
                if not self._closed.is_set():
                    self._read(stream)
        except KineticError as error:
            return error
        finally:
            with self._lock:
                self._stream = None
        return None

    def _read(self, stream: Events) -> None:
        listed: dict[str, str] | None = {}
        if not self._marked:
            # The end of the list is not marked, so deletions since the last request cannot be found.
            self._known, listed = {}, None
            self._settled = True
            self._report()
        for event in stream:
            metadata = event.object["metadata"]
            if event.type == "BOOKMARK":
                if listed is not None and _LIST_END in (metadata.get("annotations") or {}):
                    self._settled = True
                    if listed != self._known:
                        self._report()
                    self._known, listed = listed, None
            elif listed is not None:
                listed[metadata["uid"]] = metadata["resourceVersion"]
            else:
                self._known = self._known or {}
                if event.type == "DELETED":
                    self._known.pop(metadata["uid"], None)
                else:
                    self._known[metadata["uid"]] = metadata["resourceVersion"]
                self._report()
