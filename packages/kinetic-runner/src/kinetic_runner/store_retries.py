"""Retry calls to the store while it fails, so that no result of a job is lost."""

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
OnFailure = Callable[[Exception], object]

GONE: Final = (BucketNotFoundError,)
"""Errors that are not retried at the end of a job. Credentials are refreshed, permissions come back."""
REFUSED: Final = (BucketNotFoundError, CredentialsError, StorePermissionError)
"""Errors that are not retried at its beginning, when there is nothing to lose yet."""
WAIT: Final[Callable[[float], bool]] = Event().wait
"""A pause that nothing ends early."""
_PERMANENT: Final = frozenset({errno.EFBIG, errno.ENAMETOOLONG})


def retry_notice(seconds: float) -> str:
    """Return the sentence that states for how long a call is retried."""
    return f"Retrying for up to {seconds / 60:.0f} min."


def ignore_failure(_: Exception) -> None:
    """Do nothing with a failure."""


def retry(
    action: Callable[[], T],
    *,
    seconds: float,
    pause: Callable[[float], bool],
    final: tuple[type[Exception], ...] = GONE,
    on_failure: OnFailure = ignore_failure,
) -> T:
    """Return what *action* returns; retry for *seconds* while the store fails.

    *pause* waits, and returns True to give up sooner. *on_failure* is called with each error that is
    retried. Errors in *final*, and others that no waiting can change, are raised at once.
    """
    until = monotonic() + seconds
    delay = 0.1
    while True:
        try:
            return action()
        except (PreconditionFailedError, ObjectNotFoundError):
            raise
        except (StoreError, IntegrityError, OSError) as error:
            if isinstance(error, final) or _is_permanent(error):
                raise
            on_failure(error)
            if monotonic() + delay > until or pause(delay):
                raise
        delay = min(delay * 2, 5.0)


def _is_permanent(error: Exception) -> bool:
    """Return whether a disk refused something that it can never take."""
    return any(
        isinstance(one, OSError) and one.errno in _PERMANENT for one in (error, error.__cause__)
    )
