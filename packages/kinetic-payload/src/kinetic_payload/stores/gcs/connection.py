"""Authorized requests to a service, over one session per process.

`requests.Session.request` looks at the environment and at `.netrc` for every request, which takes more
processor time than the transfer of a small object. So proxies and certificates are looked up once, and
requests go directly to the adapter of google-auth's session.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_to_datetime
from queue import Empty
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import google.auth
import requests
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import AuthorizedSession
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import select_proxy

from kinetic_payload.queues import TimedQueue
from kinetic_payload.stores.gcs.errors import (
    ResponseError,
    UnreachableError,
    response_error,
)
from kinetic_payload.stores.gcs.interception import TokenRequest, check_answer, described, is_page
from kinetic_payload.stores.gcs.retry import is_transient
from kinetic_payload.stores.gcs.service import Service

CONCURRENCY: Final = 32
_POOL: Final = 2 * CONCURRENCY
_CLOCK_AGE: Final = 60.0
_REACHABLE_FOR: Final = 5.0
"""Seconds after a response for which the service counts as reachable."""

Body = bytes | Callable[[], Iterable[bytes]] | None
"""The body of a request; a callable is called again if the request is repeated."""


class ServiceClock:
    """How far a service's clock is ahead, measured by the dates of its responses.

    The date of a slow response is less exact, so the fastest response counts.
    """

    def __init__(self) -> None:
        self.ahead: float | None = None
        """In seconds; None if there was no response yet."""
        self._since = 0.0
        self._took = 0.0

    def note(self, date: str | None, sent: float, now: float) -> None:
        """Use the *date* of a response that arrived at *now*; its request was sent at *sent*."""
        known = self.ahead is not None and 0 <= now - self._since < _CLOCK_AGE
        if date is None or (known and now - sent >= self._took):
            return
        try:
            stated = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return
        # Dates are truncated to whole seconds.
        self.ahead = stated + 0.5 - (sent + now) / 2
        self._since, self._took = now, now - sent


class Connection:
    """Authorized requests to one service, from any thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._credentials = service.credentials()
        self._refused = False
        self._token_request = TokenRequest(requests.Session())
        self._session = AuthorizedSession(self._credentials, auth_request=self._token_request)  # type: ignore[no-untyped-call]
        for scheme in ("https://", "http://"):
            self._session.mount(scheme, HTTPAdapter(pool_connections=4, pool_maxsize=_POOL))
        self._session.configure_mtls_channel()  # type: ignore[no-untyped-call]
        self.base = service.address(self._credentials, mtls=self._session.is_mtls)
        versions = f"gl-python/{platform.python_version()} auth/{google.auth.__version__}"
        self._headers = {
            "User-Agent": f"kinetic {versions} (gzip)",
            # For lists. It also makes the service send an object that is stored compressed as it is, so that
            # the bytes match its size and its checksum.
            "Accept-Encoding": "gzip",
            "Accept": "*/*",
        }
        self._settings = self._read_settings()
        self.ranges = threading.BoundedSemaphore(CONCURRENCY)
        """Held while a part of a large object is transferred, to limit the memory of all parts."""
        self._token_lock = threading.Lock()
        self._clock = ServiceClock()
        self._last_response = -math.inf

    def _read_settings(self) -> dict[str, Any]:
        """Return the system's current proxies and certificates."""
        found = self._session.merge_environment_settings(self.base, {}, None, None, None)
        return {key: found[key] for key in ("verify", "cert", "proxies")}

    @property
    def principal(self) -> str:
        """The service account's address, if the credentials name it."""
        known = str(getattr(self._credentials, "service_account_email", "") or "")
        return known if "@" in known else ""

    @property
    def ahead(self) -> float | None:
        """How many seconds the service's clock is ahead of this machine's; None before a response."""
        return self._clock.ahead

    def bucket_url(self, bucket: str, **query: Any) -> str:
        """Return the URL of a bucket's metadata."""
        return f"{self.base}/storage/v1/b/{quote(bucket, safe='')}?{urlencode(query)}"

    def object_url(self, bucket: str, name: str | None, **query: Any) -> str:
        """Return the URL of an object's metadata, or of the list of objects (None)."""
        return self._url("storage/v1", bucket, name, query)

    def media_url(self, bucket: str, name: str, **query: Any) -> str:
        """Return the URL of an object's bytes."""
        return self._url("download/storage/v1", bucket, name, {"alt": "media", **query})

    def upload_url(self, bucket: str, **query: Any) -> str:
        """Return the URL of uploads."""
        return self._url("upload/storage/v1", bucket, None, query)

    def reach(self, url: str, seconds: float) -> None:
        """Make sure within *seconds* that *url* can be connected to, unless it responded a moment ago.

        The timeout of a request does not cover this: a DNS lookup may take minutes, and each of a dozen
        addresses may time out by itself.

        Raises:
            UnreachableError: There is no connection within that time.
        """
        if time.monotonic() - self._last_response < _REACHABLE_FOR:
            return
        place = urlsplit(select_proxy(url, self._settings["proxies"]) or url)
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
            self._settings = self._read_settings()
            raise UnreachableError(
                f"no connection to {place.hostname} within {seconds:.1f} s"
            ) from None
        if error is not None:
            self._settings = self._read_settings()
            raise UnreachableError(error) from error

    def send(
        self,
        method: str,
        url: str,
        *,
        timeout: tuple[float, float],
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        stream: bool = False,
    ) -> requests.Response:
        """Make one request and return the response. Repeat it once after a 401, with new credentials.

        Rejected credentials are read from their file again: a key or a login may have been replaced.

        Raises:
            ResponseError: The service refused the request.
            InterceptedResponseError: The response is not the service's.
            requests.RequestException, GoogleAuthError: There was no response.
        """
        response, token = self._attempt(method, url, timeout, headers, body, stream=stream)
        if response.status_code == 401:
            response.close()
            self._replace_credentials(token)
            response, token = self._attempt(method, url, timeout, headers, body, stream=stream)
        if response.status_code in (401, 403):
            self._note_refusal(token)
        if response.status_code >= 300 or not stream:
            # `resumable_download` checks the headers of streamed responses.
            with response:
                check_answer(response)
                if response.status_code >= 400:
                    raise _refusal(response)
        return response

    def _attempt(
        self,
        method: str,
        url: str,
        timeout: tuple[float, float],
        headers: Mapping[str, str] | None,
        body: Body,
        *,
        stream: bool,
    ) -> tuple[requests.Response, str | None]:
        request = requests.PreparedRequest()
        request.method, request.url = method, url
        merged: dict[str, str] = {**self._headers, **(headers or {})}
        if body is None and method != "GET":
            merged["Content-Length"] = "0"
        elif isinstance(body, bytes):
            merged["Content-Length"] = str(len(body))
        token = self._authorise(method, url, merged, timeout)
        request.headers = CaseInsensitiveDict(merged)
        request.body = body() if callable(body) else body  # type: ignore[assignment]
        adapter = self._session.get_adapter(url)
        sent = time.time()
        try:
            response = adapter.send(request, stream=True, timeout=timeout, **self._settings)
        except requests.RequestException:
            self._settings = self._read_settings()  # The network may have changed.
            raise
        self._last_response = time.monotonic()
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            # The clock of a captive portal may be wrong.
            self._clock.note(response.headers.get("Date"), sent, time.time())
        if not stream:
            _ = response.content  # Read it here, so that a broken connection is noticed here.
        return response, token

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

    def _replace_credentials(self, token: str | None) -> None:
        """Replace the credentials whose *token* was rejected, unless another thread has done so."""
        with self._token_lock:
            if self._credentials.token == token and not self._service.anonymous:
                self._reload_credentials()

    def _note_refusal(self, token: str | None) -> None:
        """Let the next request read the credentials again: the user may have changed the account."""
        with self._token_lock:
            if self._credentials.token == token and not self._service.anonymous:
                self._refused = True

    def _reload_credentials(self) -> None:
        self._credentials = self._service.credentials()
        self._refused = False

    def _url(self, api: str, bucket: str, name: str | None, query: Mapping[str, Any]) -> str:
        place = f"{self.base}/{api}/b/{quote(bucket, safe='')}/o"
        if name is not None:
            place += f"/{quote(name, safe='')}"
        given = {key: value for key, value in query.items() if value is not None}
        return f"{place}?{urlencode(given)}" if given else place


def _refusal(response: requests.Response) -> ResponseError:
    """Return the error for a refusal, with the API's own message."""
    message = response.text
    errors: Any = ()
    try:
        details = response.json()["error"]
        if not isinstance(details["message"], str):
            raise TypeError
        message, errors = details["message"], details.get("errors")
    except (ValueError, KeyError, TypeError, RecursionError):
        # A refused download is plain text.
        if is_page(response.content):
            message = described(response.content)
    listed = errors if isinstance(errors, list) else ()
    return response_error(
        response.status_code,
        message[:2000] or response.reason,
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
