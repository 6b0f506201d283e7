"""Writing what must not be lost: again and again while the store is away, and exactly once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.limits import read_record
from kinetic_payload.store import ABSENT, Store

T = TypeVar("T")

FINAL: Final = (BucketNotFoundError, CredentialsError, StorePermissionError)
"""What a store refuses and will go on refusing, however long one waits."""
WAIT: Final[Callable[[float], bool]] = Event().wait
"""A pause that nobody cuts short."""
AWAY: Final = 3600.0
"""Seconds that are waited for a store that does not answer, before the end of a job is lost with it."""


def persist(
    action: Callable[[], T],
    *,
    seconds: float,
    pause: Callable[[float], bool],
    away: float = 0.0,
) -> T:
    """Return what *action* returns; while the store fails, try again for *seconds*.

    A store that does not answer is given *away* seconds, if that is longer. *pause* waits, and
    returns True to give up sooner. A refusal that no waiting can change is raised at once.
    """
    began = monotonic()
    delay = 0.1
    while True:
        try:
            return action()
        except (PreconditionFailedError, *FINAL):
            raise
        except (StoreError, OSError) as error:
            patience = max(seconds, away) if isinstance(error, StoreUnavailableError) else seconds
            if monotonic() + delay > began + patience or pause(delay):
                raise
        delay = min(delay * 2, 5.0)


def create_once(
    store: Store,
    name: str,
    data: bytes,
    *,
    seconds: float,
    pause: Callable[[float], bool],
    away: float = 0.0,
) -> bytes:
    """Write *data* as *name* unless something is there; return what is there now."""
    try:
        persist(
            lambda: store.write(name, data, if_generation=ABSENT),
            seconds=seconds,
            pause=pause,
            away=away,
        )
    except PreconditionFailedError:
        # Somebody was first. That may have been our own try whose answer was lost.
        return read_record(store, name)
    return data
