"""A store through which a live log outlasts outages: a failed request is repeated until it succeeds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, cast

from kinetic.waiting import Backoff, sleep
from kinetic_payload.errors import (
    BucketNotFoundError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
)
from kinetic_payload.stores.store import ObjectInfo, Store
from kinetic_payload.threads import check_wanted

log = logging.getLogger("kinetic")

T = TypeVar("T")

_FINAL: Final = (BucketNotFoundError, ObjectNotFoundError, PreconditionFailedError)
"""Errors that no repetition can change."""
_LOOK: Final = 0.5
"""Seconds between checks whether the log is still wanted."""


def lasting(
    store: Store,
    *,
    stopped: Callable[[], bool],
    pause: Callable[[float], object] = sleep,
    warn: Callable[[str], object] = log.warning,
) -> Store:
    """Return *store* with lists and reads that are repeated while it fails, until *stopped* returns True.

    *warn* is called once for each outage. Before its first success the store raises its errors as always: a log
    does not begin without access.
    """
    return cast("Store", _Lasting(store, stopped, pause, warn))


class _Lasting:
    """The reading half of a store; all else is the store's own."""

    def __init__(
        self,
        store: Store,
        stopped: Callable[[], bool],
        pause: Callable[[float], object],
        warn: Callable[[str], object],
    ) -> None:
        self._store = store
        self._stopped = stopped
        self._pause = pause
        self._warn = warn
        self._lock = threading.Lock()
        self._reached = False
        self._warned = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, name: str, *, start: int = 0, end: int | None = None) -> bytes:
        return self._repeated(lambda: self._store.read(name, start=start, end=end))

    def stat(self, name: str) -> ObjectInfo | None:
        return self._repeated(lambda: self._store.stat(name))

    def folders(self, prefix: str = "") -> Iterator[str]:
        return iter(self._repeated(lambda: list(self._store.folders(prefix))))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        last = start_after
        found: Iterator[ObjectInfo] | None = None

        def following() -> ObjectInfo | None:
            nonlocal found
            if found is None:
                found = self._store.list(prefix, start_after=last)
            try:
                return next(found, None)
            except StoreError:
                found = (
                    None  # A list that failed has ended: begin another one after the last object.
                )
                raise

        while (info := self._repeated(following)) is not None:
            last = info.name
            yield info

    def _repeated(self, request: Callable[[], T]) -> T:
        backoff = Backoff(0.5, 5.0)
        while True:
            try:
                found = request()
            except _FINAL as error:
                if not isinstance(error, BucketNotFoundError):
                    self._reached, self._warned = True, False  # The store has responded.
                raise
            except StoreError as error:
                if not self._reached:
                    raise
                self._report(error)
                self._wait(backoff.next(), error)
            else:
                self._reached, self._warned = True, False
                return found

    def _report(self, error: StoreError) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            known = [f"{text.rstrip('.')}." for text in (error.message, error.hint) if text]
            self._warn(" ".join([*known, "The log goes on as soon as it can be read again."]))

    def _wait(self, seconds: float, error: StoreError) -> None:
        while seconds > 0:
            check_wanted()
            if self._stopped():
                raise error
            self._pause(min(seconds, _LOOK))
            seconds -= _LOOK
