"""Errors of requests to the service, before they are translated for callers."""

from __future__ import annotations

from collections.abc import Iterable

import urllib3


class ResponseError(Exception):
    """The service refused a request."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reasons: Iterable[str] = (),
        response: urllib3.BaseHTTPResponse | None = None,
    ) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        """The HTTP status."""
        self.message = message
        self.reasons = frozenset(reasons)
        """The API's names for what is wrong, such as `rateLimitExceeded`."""
        self.response = response


class NotFoundError(ResponseError):
    """404: the object or the bucket does not exist."""


class PreconditionError(ResponseError):
    """412: the object is of another generation."""


BY_CODE = {404: NotFoundError, 412: PreconditionError}


class RetryError(Exception):
    """Every attempt failed until the deadline; the cause is the last failure."""

    def __init__(self, *, sent: bool = True) -> None:
        super().__init__()
        self.sent = sent
        """Whether the service may have received any request of the whole operation."""
