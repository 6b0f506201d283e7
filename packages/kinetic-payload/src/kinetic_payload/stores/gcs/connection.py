"""Authorized requests to a service, over connections that all threads of a process share."""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import Empty
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import google.auth
import requests
import urllib3
from google.auth.exceptions import RefreshError

from kinetic_payload.errors import StoreError
from kinetic_payload.http.clock import ServiceClock
from kinetic_payload.http.session import NoResponseError, Pools, connection_errors
from kinetic_payload.proxies import proxy_of_environment
from kinetic_payload.stores.gcs.errors import BY_CODE, ResponseError
from kinetic_payload.stores.gcs.interception import TokenRequest, check_answer
from kinetic_payload.stores.gcs.retry import is_transient
from kinetic_payload.stores.gcs.service import Service
from kinetic_payload.threads import TimedQueue

CONCURRENCY: Final = 32
_REACHABLE_FOR: Final = 5.0
"""Seconds after a response for which the service counts as reachable."""

Body = bytes | Callable[[], Iterable[bytes]] | None
"""The body of a request; a callable is called again if the request is repeated."""


class Connection:
    """Authorized requests to one service, from any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._credentials = service.credentials()
        self._refused = False
        self._token_request = TokenRequest(requests.Session())
        self._pools = Pools(os.environ, failure=StoreError, size=2 * CONCURRENCY)  # noqa: TID251
        self.base = service.address(self._credentials)
        versions = f"gl-python/{platform.python_version()} auth/{google.auth.__version__}"
        self._headers = {
            "User-Agent": f"kinetic {versions} (gzip)",
            # For lists. It also makes the service send an object that is stored compressed as it is, so that
            # the bytes match its size and its checksum.
            "Accept-Encoding": "gzip",
            "Accept": "*/*",
        }
        self.ranges = threading.BoundedSemaphore(CONCURRENCY)
        """Held while a part of a large object is transferred, to limit the memory of all parts."""
        self._token_lock = threading.Lock()
        self._clock = ServiceClock()
        self._last_response = -math.inf

    @property
    def principal(self) -> str:
        """The service account's address, if the credentials name it."""
        known = str(getattr(self._credentials, "service_account_email", "") or "")
        return known if "@" in known else ""

    @property
    def ahead(self) -> float | None:
        """How many seconds the service's clock is ahead of this machine's; None before a response."""
        return self._clock.ahead

    def url(self, bucket: str, place: str = "", *, api: str = "", **query: Any) -> str:
        """Return the URL of what is at *place* of a bucket: `/o` is the list of its objects.

        With the *api* `/upload` it is the URL of uploads.
        """
        given = {key: value for key, value in query.items() if value is not None}
        found = f"{self.base}{api}/storage/v1/b/{quote(bucket, safe='')}{place}"
        return f"{found}?{urlencode(given)}" if given else found

    def object_url(self, bucket: str, name: str, *, api: str = "", **query: Any) -> str:
        """Return the URL of an object's metadata; with the *api* `/download`, of its bytes."""
        return self.url(bucket, f"/o/{quote(name, safe='')}", api=api, **query)

    def reach(self, url: str, seconds: float) -> None:
        """Make sure within *seconds* that *url* can be connected to, unless it responded a moment ago.

        The timeout of a request does not cover this: a DNS lookup may take minutes, and each of a dozen
        addresses may time out by itself.

        Raises:
            NoResponseError: There is no connection within that time, so nothing was sent.
        """
        if time.monotonic() - self._last_response < _REACHABLE_FOR:
            return
        place = urlsplit(proxy_of_environment(url) or url)
        port = place.port or (443 if place.scheme == "https" else 80)
        found: TimedQueue[OSError | None] = TimedQueue()

        def connect() -> None:
            try:
                socket.create_connection((place.hostname or "", port), timeout=2.0).close()
                found.put(None)
            except OSError as error:
                found.put(error)

        threading.Thread(target=connect, name="kinetic-reach", daemon=True).start()
        try:
            error = found.get(seconds)
        except Empty:
            reason = f"no connection to {place.hostname} within {seconds:.1f} s"
            raise NoResponseError(reason, sent=False) from None
        if error is not None:
            raise NoResponseError(str(error), sent=False) from error

    def send(
        self,
        method: str,
        url: str,
        *,
        timeout: tuple[float, float],
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Make one request and return the response. Repeat it once after a 401, with new credentials.

        Rejected credentials are read from their file again: a key or a login may have been replaced.

        Raises:
            ResponseError: The service refused the request.
            NoResponseError, GoogleAuthError: There was no response, or it is not the service's.
        """
        for again in (True, False):
            merged: dict[str, str] = {**self._headers, **(headers or {})}
            if body is None and method != "GET":
                merged["Content-Length"] = "0"
            elif isinstance(body, bytes):
                merged["Content-Length"] = str(len(body))
            token = self._authorise(method, url, merged, timeout)
            sent = time.time()
            with connection_errors():
                response = self._pools.to(url).urlopen(
                    method,
                    url,
                    body=body() if callable(body) else body,
                    headers=merged,
                    timeout=urllib3.Timeout(connect=timeout[0], read=timeout[1]),
                    retries=False,
                    redirect=False,
                    preload_content=not stream,
                )
            self._last_response = time.monotonic()
            if not response.headers.get("Content-Type", "").startswith("text/html"):
                # The clock of a captive portal may be wrong.
                self._clock.note(response.headers.get("Date"), sent, time.time())
            if response.status in (401, 403):
                # The user may log in again, or change the account: let the next request read the credentials again,
                # unless another thread has replaced them.
                with self._token_lock:
                    if self._credentials.token == token and not self._service.anonymous:
                        self._refused = True
            if response.status != 401 or not again:
                break
            response.close()
        if response.status >= 300 or not stream:
            # `resumable_download` checks the headers of streamed responses.
            with connection_errors():
                _ = response.data
            check_answer(method, response)
            if response.status >= 400:
                raise _refusal(response)
        return response

    def _authorise(
        self, method: str, url: str, headers: dict[str, str], timeout: tuple[float, float]
    ) -> str | None:
        token_request = functools.partial(self._token_request, timeout=timeout)
        # Only one thread refreshes a token that has expired.
        with self._token_lock:
            if self._refused:
                self._reload_credentials()
            try:
                self._credentials.before_request(token_request, method, url, headers)
            except RefreshError as error:
                if is_transient(error) or self._service.anonymous:
                    raise
                self._reload_credentials()
                self._credentials.before_request(token_request, method, url, headers)
            token: str | None = self._credentials.token
        return token

    def _reload_credentials(self) -> None:
        self._credentials = self._service.credentials()
        self._refused = False


def _refusal(response: urllib3.BaseHTTPResponse) -> ResponseError:
    """Return the error for a refusal, with the API's own message."""
    errors: Any = ()
    try:
        details = json.loads(response.data)["error"]
        if not isinstance(details["message"], str):
            raise TypeError
        message, errors = details["message"], details.get("errors")
    except (ValueError, KeyError, TypeError, RecursionError):
        message = response.data.decode("utf-8", "replace")  # A refused download is plain text.
    listed = errors if isinstance(errors, list) else ()
    return BY_CODE.get(response.status, ResponseError)(
        response.status,
        message[:2000] or response.reason or "",
        reasons=(str(item.get("reason")) for item in listed if isinstance(item, dict)),
        response=response,
    )


_connections: dict[Service, Connection] = {}
_guard = threading.Lock()


def connection_to(service: Service) -> Connection:
    """Return this process's connection to *service*, created on first use."""
    found = _connections.get(service)
    if found is None:
        with _guard:
            found = _connections.get(service)
            if found is None:
                found = _connections[service] = Connection(service)
    return found


def _after_fork() -> None:
    # Sockets belong to the parent, and another thread of it may have held the lock.
    global _guard
    _guard = threading.Lock()
    _connections.clear()


os.register_at_fork(after_in_child=_after_fork)
