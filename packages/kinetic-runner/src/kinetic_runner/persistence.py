"""Writing what must not be lost: again and again while the store is away, and exactly once."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
)
from kinetic_payload.store import ABSENT, Store

T = TypeVar("T")

FINAL: Final = (BucketNotFoundError, CredentialsError, StorePermissionError)
"""What a store refuses and will go on refusing, however long one waits."""


def persist(action: Callable[[], T], *, seconds: float, pause: Callable[[float], bool]) -> T:
    """Return what *action* returns; while the store fails, try again for *seconds*.

    *pause* waits, and returns True to give up sooner. A refusal that no waiting can change is
    raised at once.
    """
    until = monotonic() + seconds
    delay = 0.1
    while True:
        try:
            return action()
        except (PreconditionFailedError, *FINAL):
            raise
        except (StoreError, OSError):
            if monotonic() + delay > until or pause(delay):
                raise
        delay = min(delay * 2, 5.0)


def create_once(
    store: Store, name: str, data: bytes, *, seconds: float, pause: Callable[[float], bool]
) -> bytes:
    """Write *data* as *name* unless something is there; return what is there now."""
    try:
        persist(lambda: store.write(name, data, if_generation=ABSENT), seconds=seconds, pause=pause)
    except PreconditionFailedError:
        # Somebody was first. That may have been our own try whose answer was lost.
        return store.read(name)
    return data
