"""Writing what must not be lost: again and again while the store fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    IntegrityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StoreError,
    StorePermissionError,
)

T = TypeVar("T")
Failing = Callable[[Exception], object]

GONE: Final = (BucketNotFoundError,)
"""What no waiting changes at the end of a job. Credentials are refreshed, permissions come back."""
REFUSED: Final = (BucketNotFoundError, CredentialsError, StorePermissionError)
"""What is not waited for at its beginning, when nothing is lost yet."""
WAIT: Final[Callable[[float], bool]] = Event().wait
"""A pause that nobody cuts short."""
_LASTING: Final = frozenset({errno.EFBIG, errno.ENAMETOOLONG})


def retrying(seconds: float) -> str:
    """Return the sentence that says for how long something is tried again."""
    return f"Retrying for up to {seconds / 60:.0f} min."


def quietly(_: Exception) -> None:
    """Report a failure to nobody."""


def persist(
    action: Callable[[], T],
    *,
    seconds: float,
    pause: Callable[[float], bool],
    final: tuple[type[Exception], ...] = GONE,
    failing: Failing = quietly,
) -> T:
    """Return what *action* returns; while the store fails, try again for *seconds*.

    *pause* waits, and returns True to give up sooner. *failing* is told of every failure that is tried
    again. Errors in *final*, and what no waiting can change, are raised at once.
    """
    until = monotonic() + seconds
    delay = 0.1
    while True:
        try:
            return action()
        except (PreconditionFailedError, ObjectNotFoundError):
            raise
        except (StoreError, IntegrityError, OSError) as error:
            if isinstance(error, final) or _lasts(error):
                raise
            failing(error)
            if monotonic() + delay > until or pause(delay):
                raise
        delay = min(delay * 2, 5.0)


def _lasts(error: Exception) -> bool:
    """Return whether a disk refused what it can never take."""
    return any(
        isinstance(one, OSError) and one.errno in _LASTING for one in (error, error.__cause__)
    )
