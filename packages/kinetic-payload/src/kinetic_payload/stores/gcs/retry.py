"""Retry policy: which failures are transient, and for how long they are retried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

from kinetic_payload.http import retry as http_retry
from kinetic_payload.http.retry import (
    TRANSIENT_STATUSES,
    GaveUpError,
    TransientError,
    retry_after,
)
from kinetic_payload.http.session import NoResponseError, causes, is_untrusted
from kinetic_payload.stores.gcs.errors import ResponseError, RetryError
from kinetic_payload.stores.outages import OutageLimit

_T = TypeVar("_T")

_TOO_FAST: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})


@dataclass(frozen=True, kw_only=True)
class RetryPolicy(http_retry.RetryPolicy):
    """How long one operation is retried, and the timeouts of its requests. In seconds."""

    limit: float = 150.0
    """The limit without any progress. A transfer that makes progress may take as long as it needs."""
    longest: float = 12.0
    connect: float = 10.0
    read: float = 40.0
    """How long a connection may be silent."""
    quiet: float = 3.0
    """How long failures last before they are reported."""

    def run_attempts(
        self,
        act: Callable[[int], _T],
        outage: OutageLimit,
        *,
        progress: Callable[[], int] = lambda: 0,
        on_failure: Callable[[Exception], object] = lambda _: None,
    ) -> _T:
        """Return `act(n)`, where *n* is the number of failed attempts; retry it after transient failures.

        Progress restarts the time. *act* must not retry by itself, or two limits would add up. *outage* ends all
        requests of an operation together. *on_failure* is called with each error.

        Raises:
            RetryError: The time is up, or the service's certificate is not trusted.
        """
        failed, reached = 0, progress()

        def attempt(_: float) -> _T:
            nonlocal failed, reached
            if outage.last is not None and outage.left <= 0:
                on_failure(outage.last)  # The first report may be due since the last pause.
                raise RetryError(sent=outage.sent) from outage.last
            began = outage.clock()
            try:
                with outage.attempt(progress):
                    found = act(failed)
            except Exception as error:
                if isinstance(error, NoResponseError):
                    sent = error.sent
                else:  # An error of credentials occurs before the request is sent.
                    sent = not isinstance(error, GoogleAuthError)
                if sent:  # Threads may share the outage, so it is never set back.
                    outage.sent = True
                if is_untrusted(error):
                    raise RetryError(sent=outage.sent) from error
                if not is_transient(error):
                    if isinstance(error, ResponseError):
                        outage.worked()
                    raise
                if progress() != reached:
                    began, reached = outage.clock(), progress()
                    outage.worked()
                outage.failed(began, error)
                on_failure(error)
                if outage.left <= 0:
                    raise RetryError(sent=outage.sent) from error
                failed += 1
                response = error.response if isinstance(error, ResponseError) else None
                asked = 0.0 if response is None else retry_after(response.headers)
                raise TransientError(str(error), retry_after=asked) from error
            except BaseException:
                outage.sent = True
                raise
            outage.worked()
            return found

        def wait(seconds: float) -> object:
            return self.pause(min(seconds, max(outage.left, 0.0)))

        policy = replace(self, limit=min(self.limit, outage.seconds), pause=wait)
        try:
            return policy.run(attempt, progress=progress)
        except GaveUpError as error:
            raise RetryError(sent=outage.sent) from error.last.__cause__


def is_transient(error: BaseException) -> bool:
    """Return whether an attempt after *error* may succeed."""
    if isinstance(error, ResponseError):
        return error.code in TRANSIENT_STATUSES or (
            error.code == 403 and bool(error.reasons & _TOO_FAST)
        )
    if isinstance(error, NoResponseError):
        return error.transient
    if is_untrusted(error):
        return False
    if isinstance(error, RefreshError):
        return error.retryable or any(isinstance(cause, TransportError) for cause in causes(error))
    return isinstance(error, TransportError)
