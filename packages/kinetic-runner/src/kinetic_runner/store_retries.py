"""Retry calls to the store while it fails, so that no result of a job is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final, TypeVar

from kinetic_payload.backoff import Backoff
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
"""Errors that are not retried at the end of a job. Lost credentials and permissions may be restored."""
REFUSED: Final = (BucketNotFoundError, CredentialsError, StorePermissionError)
"""Errors that are not retried at the start of a job, when no result can be lost yet."""
NEW_POD_SECONDS: Final = 60.0
"""Seconds after the start of a pod in which rejected credentials are retried: Workload Identity and its metadata
server need some, https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#limitations."""
WAIT: Final[Callable[[float], bool]] = Event().wait
"""Waits for a number of seconds; nothing ends the wait early."""
_PERMANENT: Final = frozenset({errno.EFBIG, errno.ENAMETOOLONG})


def retry_notice(seconds: float) -> str:
    """Return the sentence that states for how long a call is retried."""
    return f"Retrying for up to {seconds / 60:.0f} min."


def ignore_failure(_: Exception) -> None:
    """Ignore the error of a failed call."""


def retry(
    action: Callable[[], T],
    *,
    seconds: float,
    pause: Callable[[float], bool],
    retried: tuple[type[Exception], ...] = (StoreError, IntegrityError, OSError),
    final: tuple[type[Exception], ...] = GONE,
    on_failure: OnFailure = ignore_failure,
) -> T:
    """Return what *action* returns; retry for *seconds* while the store fails.

    *pause* waits, and returns True to give up sooner. *on_failure* is called with each error that is
    *retried*. Errors in *final*, and errors that no retry can fix, are raised at once.
    """
    until, backoff = monotonic() + seconds, Backoff(0.1, 5.0, jitter=0)
    while True:
        try:
            return action()
        except (PreconditionFailedError, ObjectNotFoundError):
            raise
        except retried as error:
            # The disk can never accept a file that is too large, or whose name is too long.
            permanent = any(
                isinstance(each, OSError) and each.errno in _PERMANENT
                for each in (error, error.__cause__)
            )
            if isinstance(error, final) or permanent:
                raise
            on_failure(error)
            left = until - monotonic()
            if left <= 0 or pause(min(backoff.next(), left)):
                raise


def retry_in_new_pod(
    action: Callable[[], T],
    *,
    seconds: float,
    pause: Callable[[float], bool],
    warn: Callable[[str], object],
) -> T:
    """Return what *action* returns; retry for *seconds* while the store rejects this pod's credentials.

    *warn* is called once with a sentence about it. *pause* waits, and returns True to give up sooner.
    """
    warned = seconds <= 0

    def warn_once(error: Exception) -> None:
        nonlocal warned
        if not warned:
            why = str(getattr(error, "message", error)).rstrip(".")
            warn(f"{why}. The pod is new: retrying for up to {seconds:.0f} s.")
        warned = True

    rejected = (CredentialsError, StorePermissionError)
    return retry(
        action, seconds=seconds, pause=pause, retried=rejected, final=(), on_failure=warn_once
    )
