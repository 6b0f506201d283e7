"""Responses that captive portals and proxies send in the service's place."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

import google.auth.transport.requests
import urllib3
from google.auth.exceptions import TransportError

from kinetic_payload.http.session import connection_errors
from kinetic_payload.stores.gcs.errors import InterceptedResponseError

_HTML: Final = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title", re.I | re.S)
_BEGINNING: Final = 4096
"""How many bytes of a body are examined to find out what it is."""


def check_answer(method: str, response: urllib3.BaseHTTPResponse) -> None:
    """Make sure that *response* to a *method*, whose body was read, may be the service's own.

    The service sends JSON, and plain text in refusals. An HTML page comes from elsewhere, so its status says
    nothing about an object. A server's failure (5xx) is accepted from anywhere.

    Raises:
        InterceptedResponseError: It is not.
    """
    status, body = response.status, response.data
    if 300 <= status < 400 and (status != 308 or "Location" in response.headers):
        raise intercepted(response)
    if status == 511 or (status < 500 and status != 407 and is_page(body)):
        raise intercepted(response)
    # The service sends no body for an upload session that ended.
    if status == 404 and not body.strip() and method != "PUT":
        raise intercepted(response)
    if status == 404 and _is_json(body) and not _is_error(body):
        raise intercepted(response)


def intercepted(
    response: urllib3.BaseHTTPResponse, wanted: str = "the requested data"
) -> InterceptedResponseError:
    """Return the error for a *response* that is not the service's."""
    status = f"(status {response.status})"
    place = urlsplit(response.headers.get("Location", "")).hostname
    if 300 <= response.status < 400:
        where = f" to {place}" if place else ""
        return InterceptedResponseError(f"a redirect{where} instead of {wanted} {status}")
    with connection_errors():
        body = response.read(_BEGINNING) or response.data  # It was read before, or is streamed.
    return InterceptedResponseError(f"{described(body)} instead of {wanted} {status}")


def is_page(body: bytes) -> bool:
    """Return whether *body* is HTML."""
    return _HTML.match(body[:_BEGINNING]) is not None


def described(body: bytes) -> str:
    """Describe *body* by its beginning."""
    if not body.strip():
        return "an empty response"
    text = body.decode("utf-8", "replace")
    if not is_page(body):
        return f"the text {' '.join(text[:100].split())!r}"
    title = _TITLE.search(text)
    named = " ".join(title[1].split())[:100] if title else ""
    return f"an HTML page {named!r}" if named else "an HTML page"


class TokenRequest(google.auth.transport.requests.Request):
    """Requests tokens, and rejects the response of a captive portal."""

    def __call__(self, url: Any, method: Any = "GET", *args: Any, **more: Any) -> Any:
        """Make one request.

        Raises:
            TransportError: The response was not Google's.
        """
        found = super().__call__(url, method, *args, **more)  # type: ignore[no-untyped-call]
        if is_page(found.data) or (
            method == "POST" and found.status == 200 and not _is_json(found.data)
        ):
            raise TransportError(  # type: ignore[no-untyped-call]
                InterceptedResponseError(
                    f"{described(found.data)} instead of a token (status {found.status})"
                )
            )
        return found


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _is_error(body: bytes) -> bool:
    """Return whether *body*, which is JSON, is an error of the service's form."""
    try:
        return isinstance(json.loads(body)["error"]["message"], str)
    except (KeyError, TypeError):
        return False
