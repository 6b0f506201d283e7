"""Responses and errors of the API, in Google's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinetic_payload.testing.gcs.contents import Content

JSON = "application/json; charset=UTF-8"
TEXT = "text/html; charset=UTF-8"


@dataclass
class Slice:
    """A part of an object's content, sent without reading it into memory."""

    content: Content
    start: int
    length: int


@dataclass
class Answer:
    """An HTTP response."""

    status: int = 200
    body: bytes | Slice = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The size of the body."""
        return self.body.length if isinstance(self.body, Slice) else len(self.body)


def json_answer(data: Any, *, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    """Return a response with *data* as JSON."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(status, body, {"Content-Type": JSON, **headers})


class ApiError(Exception):
    """The API refuses a request."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        location: tuple[str, str] | None = None,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.domain = domain
        self.location = location
        self.headers = headers

    def answer(self, *, plain: bool = False) -> Answer:
        """Return the response: JSON, or *plain* text for a download."""
        if plain:
            return Answer(
                self.status, self.message.encode(), {"Content-Type": TEXT, **self.headers}
            )
        detail = {"message": self.message, "domain": self.domain, "reason": self.reason}
        if self.location is not None:
            detail["locationType"], detail["location"] = self.location
        error = {"code": self.status, "message": self.message, "errors": [detail]}
        return json_answer({"error": error}, status=self.status, headers=self.headers)


def invalid(message: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, "invalid", message)


def required(message: str) -> ApiError:
    """Return the error for a missing parameter."""
    return ApiError(400, "required", message)


def no_bucket() -> ApiError:
    """Return the error for a bucket that does not exist."""
    return ApiError(404, "notFound", "The specified bucket does not exist.")


def no_object(bucket: str, name: str) -> ApiError:
    """Return the error for an object that does not exist."""
    return ApiError(404, "notFound", f"No such object: {bucket}/{name}")


def precondition_failed() -> ApiError:
    """Return the error for a precondition that does not hold."""
    message = "At least one of the pre-conditions you specified did not hold."
    return ApiError(412, "conditionNotMet", message, location=("header", "If-Match"))


def injected(status: int, headers: Mapping[str, str]) -> ApiError:
    """Return the error for an injected *status*."""
    reason, message, domain = {
        403: (
            "forbidden",
            "Caller does not have storage.objects.get access to the Google Cloud Storage object. "
            "Permission 'storage.objects.get' denied on resource (or it may not exist).",
            "global",
        ),
        408: ("requestTimeout", "Request timeout.", "global"),
        429: ("rateLimitExceeded", "Rate limit exceeded.", "usageLimits"),
        500: ("internalError", "Internal Error", "global"),
        502: ("badGateway", "Bad Gateway", "global"),
        503: ("backendError", "We encountered an internal error. Please try again.", "global"),
        504: ("gatewayTimeout", "Gateway Timeout", "global"),
    }.get(status, ("backendError", "Backend Error", "global"))
    return ApiError(status, reason, message, domain=domain, headers=headers)
