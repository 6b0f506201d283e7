"""Claims: one of many machines builds, the others wait; a claim of a killed process expires."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic
from typing import Final

from kinetic_payload.errors import ObjectNotFoundError, PreconditionFailedError, StoreError
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.stores.store import ABSENT, Store
from kinetic_payload.threads import Stopped, check_wanted, finishing, stoppable

EXPIRY_SECONDS: Final = 60.0
"""Seconds without renewal after which a claim no longer counts, by the clock of the store or of the process that waits."""
_RENEW_SECONDS: Final = 15.0
_RELEASE_SECONDS: Final = 5.0
"""How long a release may take: without one, the claim expires."""
_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Claims:
    """Claims as objects of *store*."""

    store: Store
    who: str
    """Who claims, for those who wait: `user@host`."""
    expiry: float = EXPIRY_SECONDS
    pause: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    clock: Callable[[], float] = monotonic

    @contextmanager
    def held(
        self, name: str, *, done: Callable[[], bool], waiting: Callable[[str], None]
    ) -> Iterator[bool]:
        """Hold the claim *name* during the block; yield True.

        While another process holds it, wait until it releases the claim, is killed, or the work is *done*;
        then yield False without the claim. *waiting* is called once with the name of who holds it.

        Raises:
            StoreError: The store cannot be read or written.
        """
        mine = self._acquired(name, done, waiting)
        if mine is None:
            yield False
            return
        stop = threading.Event()
        renewal = threading.Thread(
            target=self._renew, args=(name, mine, stop), daemon=True, name="claim"
        )
        renewal.start()
        try:
            yield True
        finally:
            stop.set()
            renewal.join(_RELEASE_SECONDS)
            if not renewal.is_alive():  # During an outage, it expires.
                # Also after Ctrl-C, which stops this thread's work: otherwise others would wait for the expiry.
                store = self.store.limited(OutageLimit(_RELEASE_SECONDS, quiet=inf))
                with finishing(_RELEASE_SECONDS), suppress(StoreError, Stopped):
                    try:
                        store.delete(name, if_generation=mine.generation)
                    except PreconditionFailedError:
                        if mine.is_still(name, store):
                            store.delete(name, if_generation=mine.generation)

    def _acquired(
        self, name: str, done: Callable[[], bool], waiting: Callable[[str], None]
    ) -> _Claim | None:
        reported, seen, since = False, ABSENT, self.clock()
        while True:
            content = json.dumps({"who": self.who, "token": secrets.token_hex(8)}).encode()
            found = self.store.stat(name)
            if found is not None and found.generation != seen:
                seen, since = found.generation, self.clock()
            # In a folder that machines share, the time is that of the machine that wrote it: a claim from the
            # future expires when it was not renewed for long enough while this process waited.
            if (
                found is None
                or self.store.now() - found.updated > self.expiry
                or self.clock() - since > self.expiry
            ):
                generation = ABSENT if found is None else found.generation
                with suppress(PreconditionFailedError):
                    info = self.store.write(name, content, if_generation=generation)
                    return _Claim(content, info.generation)
                continue
            if done():
                return None
            if not reported:
                reported = True
                holder = "another process"
                with suppress(ObjectNotFoundError, ValueError, KeyError, TypeError):
                    holder = str(json.loads(self.store.read(name))["who"])
                waiting(holder)
            check_wanted()
            self.pause(_POLL_SECONDS)

    def _renew(self, name: str, mine: _Claim, stop: threading.Event) -> None:
        every = min(_RENEW_SECONDS, self.expiry / 4)
        while not stop.wait(every):
            store = self.store.limited(OutageLimit(every, quiet=inf))
            try:
                with stoppable(stop.is_set):
                    try:
                        info = store.write(name, mine.content, if_generation=mine.generation)
                        mine.generation = info.generation
                    except PreconditionFailedError:
                        if not mine.is_still(name, store):
                            return  # It expired, and another process has taken it.
            except Stopped:
                return
            except StoreError:
                continue  # Try again: an outage may be shorter than the expiry.


@dataclass
class _Claim:
    content: bytes
    generation: int

    def is_still(self, name: str, store: Store) -> bool:
        """Return whether it is there, and note its generation: the response to a renewal may be lost."""
        found = store.stat(name)
        try:
            ours = found is not None and store.read(name) == self.content
        except ObjectNotFoundError:
            return False
        if found is not None and ours:
            self.generation = found.generation
        return ours
