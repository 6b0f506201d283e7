"""Errors of the API, in Google's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinetic_servers.http.messages import Answer, RefusedError, json_answer

TEXT: Final = "text/html; charset=UTF-8"


def refusal(error: RefusedError, *, plain: bool) -> Answer:
    """Return the response for *error*: JSON, or *plain* text for a download."""
    if plain:
        return Answer(error.status, error.message.encode(), {"Content-Type": TEXT, **error.headers})
    detail = {"message": error.message, "domain": error.domain, "reason": error.code}
    if error.location is not None:
        detail["locationType"], detail["location"] = error.location
    data = {"code": error.status, "message": error.message, "errors": [detail]}
    return json_answer({"error": data}, status=error.status, headers=error.headers)


def invalid(message: str) -> RefusedError:
    """Return the error for an invalid request."""
    return RefusedError(400, "invalid", message)


def required(message: str) -> RefusedError:
    """Return the error for a missing parameter."""
    return RefusedError(400, "required", message)


def no_bucket() -> RefusedError:
    """Return the error for a bucket that does not exist."""
    return RefusedError(404, "notFound", "The specified bucket does not exist.")


def no_object(bucket: str, name: str) -> RefusedError:
    """Return the error for an object that does not exist."""
    return RefusedError(404, "notFound", f"No such object: {bucket}/{name}")


def precondition_failed() -> RefusedError:
    """Return the error for a precondition that does not hold."""
    message = "At least one of the pre-conditions you specified did not hold."
    return RefusedError(412, "conditionNotMet", message, location=("header", "If-Match"))


def unauthorised(reason: str, message: str) -> RefusedError:
    """Return the error for a missing or wrong token."""
    challenge = {"WWW-Authenticate": 'Bearer realm="https://accounts.google.com/"'}
    place = ("header", "Authorization")
    return RefusedError(401, reason, message, location=place, headers=challenge)


def denied(principal: str | None, permission: str, on: str) -> RefusedError:
    """Return the error for a missing permission."""
    thing = {"project": "Google Cloud project"}.get(on, f"Google Cloud Storage {on}")
    message = (
        f"{principal or 'Anonymous caller'} does not have {permission} access to the {thing}. "
        f"Permission '{permission}' denied on resource (or it may not exist)."
    )
    if principal is None:
        return unauthorised("required", message)
    return RefusedError(403, "forbidden", message)


INJECTED: Final[Mapping[int, RefusedError]] = {
    403: denied("Caller", "storage.objects.get", "object"),
    408: RefusedError(408, "requestTimeout", "Request timeout."),
    429: RefusedError(429, "rateLimitExceeded", "Rate limit exceeded.", domain="usageLimits"),
    500: RefusedError(500, "internalError", "Internal Error"),
    502: RefusedError(502, "badGateway", "Bad Gateway"),
    503: RefusedError(503, "backendError", "We encountered an internal error. Please try again."),
    504: RefusedError(504, "gatewayTimeout", "Gateway Timeout"),
}
"""The errors for injected statuses; others are backend errors."""
