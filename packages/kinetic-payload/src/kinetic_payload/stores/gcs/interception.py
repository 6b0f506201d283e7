"""Responses that captive portals and proxies send in the service's place."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import google.auth.transport.requests
import urllib3
from google.auth.exceptions import TransportError

from kinetic_payload.http.session import NoResponseError, connection_errors

_HTML: Final = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_BEGINNING: Final = 4096
"""How many bytes of a body are examined to find out what it is."""


def check_answer(method: str, response: urllib3.BaseHTTPResponse) -> None:
    """Make sure that *response* to a *method*, whose body was read, may be the service's own.

    Of another response, the status says nothing about an object. A server's failure (5xx) is accepted from anywhere.

    Raises:
        NoResponseError: It is not.
    """
    status, body = response.status, response.data
    redirects = 300 <= status < 400 and (status != 308 or "Location" in response.headers)
    is_page = status == 511 or (status < 500 and status != 407 and _is_page(body))
    # The service sends no body for an upload session that ended.
    is_nothing = status == 404 and not (body.strip() or method == "PUT")
    if redirects or is_page or is_nothing or (status == 404 and not _is_googles(body)):
        raise intercepted(response)


def intercepted(
    response: urllib3.BaseHTTPResponse, wanted: str = "the requested data"
) -> NoResponseError:
    """Return the error for a *response* that is not the service's."""
    with connection_errors():
        body = response.read(_BEGINNING) or response.data  # It was read before, or is streamed.
    shown = " ".join(body[:200].decode("utf-8", "replace").split())
    return NoResponseError(
        f"a proxy, or a captive portal of this network, responded with {shown!r} instead of {wanted} "
        f"(status {response.status})"
    )


class TokenRequest(google.auth.transport.requests.Request):
    """Requests tokens, and rejects the page of a captive portal, and a response that was cut off."""

    def __call__(self, url: Any, method: Any = "GET", *args: Any, **more: Any) -> Any:
        """Make one request.

        Raises:
            TransportError: The response was not Google's.
        """
        found = super().__call__(url, method, *args, **more)  # type: ignore[no-untyped-call]
        # google-auth fails with a TypeError if this is no object.
        is_token = isinstance(_parsed(found.data), dict)
        if _is_page(found.data) or (method == "POST" and found.status == 200 and not is_token):
            raise TransportError(f"another response instead of a token (status {found.status})")  # type: ignore[no-untyped-call]
        return found


def _is_page(body: bytes) -> bool:
    return _HTML.match(body[:_BEGINNING]) is not None


def _is_googles(body: bytes) -> bool:
    """Return whether *body* may be that of a refusal: an error in JSON, or of a download plain text."""
    found = _parsed(body)
    try:
        return found is ... or isinstance(found["error"]["message"], str)
    except (KeyError, TypeError):
        return False


def _parsed(body: bytes) -> Any:
    """Return the value that the JSON *body* is; `...` if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return ...
