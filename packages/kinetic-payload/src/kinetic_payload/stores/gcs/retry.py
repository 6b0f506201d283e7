"""Retry policy: which failures are transient, and for how long they are retried."""

from __future__ import annotations

import http.client
import random
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final, TypeVar

import requests
import urllib3.exceptions
from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

from kinetic_payload.stores.gcs.errors import (
    InvalidResponseError,
    ResponseError,
    RetryError,
    UnreachableError,
)
from kinetic_payload.stores.outages import OutageLimit
from kinetic_payload.threads import check_wanted, pause

_T = TypeVar("_T")

_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_SECONDS: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]+)?")
_TOO_FAST: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})


@dataclass(frozen=True)
class RetryPolicy:
    """How long one operation is retried, and the pauses between its attempts. In seconds."""

    deadline: float = 150.0
    """The limit without any progress. A transfer that makes progress may take as long as it needs."""
    first: float = 0.25
    """The limit of the first pause. Pauses are random below a limit that doubles."""
    longest: float = 12.0
    """The limit of all pauses, unless the service asks for a longer one."""
    connect: float = 10.0
    read: float = 40.0
    """How long a connection may be silent."""
    quiet: float = 3.0
    """How long failures last before they are reported."""
    clock: Callable[[], float] = monotonic
    pause: Callable[[float], object] = pause
    """The clock and the sleep to use."""

    def run(
        self,
        act: Callable[[int], _T],
        *,
        progress: Callable[[], int] = lambda: 0,
        on_failure: Callable[[Exception], object] = lambda _: None,
        limit: OutageLimit | None = None,
        where: str = "",
    ) -> _T:
        """Return `act(n)`, where *n* is the number of failed attempts; retry it after transient failures.

        Progress restarts the deadline. *act* must not retry by itself, or two deadlines would add up.
        *on_failure* is called with each error after `quiet` seconds of failures. A *limit* ends all requests
        of an operation to *where* together; with one, *on_failure* is called each time, because the limit
        decides when to report.

        Raises:
            RetryError: The deadline has passed, or the service's certificate is not trusted.
        """
        # Without a limit, only the deadline ends this call.
        shared = limit is not None
        limit = limit or OutageLimit(inf)
        failed, longest = 0, self.first
        since, reached = self.clock(), progress()
        while True:
            check_wanted()
            if limit.reached:
                raise RetryError(sent=limit.sent) from limit.last
            try:
                with limit.attempt(where, progress) as began:
                    found = act(failed)
                limit.worked()
                return found
            except Exception as error:
                limit.sent = limit.sent or _may_be_sent(error)
                if is_certificate_error(error):
                    raise RetryError(sent=limit.sent) from error
                if not is_transient(error):
                    if isinstance(error, ResponseError):
                        limit.worked()
                    raise
                now, moved = self.clock(), progress()
                if moved != reached:
                    since, reached, longest = now, moved, self.first
                    began = limit.clock()
                    limit.worked()
                limit.failed(began, error)
                left = min(since + min(self.deadline, limit.seconds) - now, limit.left)
                if left <= 0:
                    raise RetryError(sent=limit.sent) from error
                if shared or now - since >= self.quiet:
                    on_failure(error)
                wait = _retry_after(error) + random.uniform(0, longest)  # noqa: S311 - no secret
            except BaseException:
                limit.sent = True
                raise
            # The last attempt is at the deadline, even if the service asks for a longer pause.
            self.pause(min(left, wait))
            failed, longest = failed + 1, min(2 * longest, self.longest)


def is_transient(error: BaseException) -> bool:
    """Return whether an attempt after *error* may succeed."""
    if isinstance(error, ResponseError):
        return error.code in _TRANSIENT or (error.code == 403 and bool(error.reasons & _TOO_FAST))
    if is_certificate_error(error):
        return False
    if isinstance(error, RefreshError):
        return error.retryable or any(
            isinstance(inner, TransportError) and is_transient(inner) for inner in error.args
        )
    if isinstance(error, TransportError):
        return all(is_transient(inner) for inner in error.args if isinstance(inner, Exception))
    return isinstance(
        error,
        InvalidResponseError
        | requests.ConnectionError
        | requests.Timeout
        | requests.exceptions.ChunkedEncodingError
        | requests.exceptions.ContentDecodingError
        | urllib3.exceptions.HTTPError
        | http.client.HTTPException
        | ConnectionError
        | TimeoutError,
    )


def _may_be_sent(error: Exception) -> bool:
    # An error of credentials occurs before the request is sent.
    return not (
        isinstance(error, UnreachableError | GoogleAuthError) or is_certificate_error(error)
    )


def _retry_after(error: Exception) -> float:
    """Return the pause that the service asks for, in seconds."""
    if not isinstance(error, ResponseError) or error.response is None:
        return 0.0
    value = error.response.headers.get("Retry-After", "")
    # The value may also be a date, which is ignored.
    return float(value) if _SECONDS.fullmatch(value) else 0.0


def is_certificate_error(error: BaseException) -> bool:
    """Return whether a certificate is not trusted, which retries do not change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    wrapped = [*error.args, getattr(error, "reason", None)]
    return any(
        isinstance(inner, Exception) and inner is not error and is_certificate_error(inner)
        for inner in wrapped
    )
