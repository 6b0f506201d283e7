"""Connections to an API server, together with the credentials that they use."""

from __future__ import annotations

import copy
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import urllib3
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util import parse_url

from kinetic_k8s.errors import (
    ClusterError,
    ClusterUnreachableError,
    InvalidRequestError,
    NotAuthenticatedError,
)
from kinetic_payload.backoff import Backoff
from kinetic_payload.http.clock import ServiceClock
from kinetic_payload.proxies import proxy_headers

_RETRY_RENEWAL: Final = timedelta(seconds=30)
"""When a failed renewal of credentials that the server still accepts is repeated."""
_FIRST_LOGIN_PAUSE: Final = 2.0
_LONGEST_LOGIN_PAUSE: Final = 30.0


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """The credentials of a request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """An `HTTPHeaderDict` if one of them is sent several times, each with another value."""
    certificate: tuple[str, str] | None = None
    """Paths of a client certificate and its key."""
    renew_at: datetime | None = None
    """Requests from then on use new ones. None: new ones are got only when the server rejects these."""

    @property
    def anonymous(self) -> bool:
        """Whether there is neither a token nor a certificate; the server then treats requests as anonymous."""
        return "Authorization" not in self.headers and self.certificate is None


@dataclass(frozen=True, kw_only=True)
class Access:
    """The address of an API server, and how to authenticate to it."""

    server: str
    """Such as `https://10.0.0.1:443`; may end in a path."""
    credentials: Callable[[], Credentials] = field(default=Credentials, repr=False)
    """Called before the first request, again at `Credentials.renew_at`, and when the server rejects them.

    If it raises `NotAuthenticatedError`, it is called again after a pause: a person may log in meanwhile.
    """
    namespace: str = "default"
    context: str | None = None
    ca: str | None = field(default=None, repr=False)
    """Trusted CA certificates, as PEM; None: those of the system."""
    verify: bool = True
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the address."""
    proxy: str | None = field(default=None, repr=False)
    """As `proxies.proxy_url` returns it; it may contain a password."""
    title: str = ""
    """The cluster's name for messages, if the address says little."""

    def is_at(self, other: Access) -> bool:
        """Return whether *other* has the same address, and the same certificates of its authority."""
        address = (self.server, self.ca, self.server_name)
        return address == (other.server, other.ca, other.server_name)


@dataclass(frozen=True)
class Opened:
    """Open connections, together with the credentials that they use."""

    pool: urllib3.PoolManager
    server: str
    headers: HTTPHeaderDict = field(repr=False)
    dial: Callable[[float], socket.socket] = field(repr=False)
    """Opens a connection that is not in the pool, for a protocol other than HTTP, within so many seconds.

    Raises:
        OSError: There is no connection, or the server's certificate is not trusted.
        HTTPError: The same, from urllib3.
    """

    def request(
        self,
        method: str,
        path: str,
        *,
        timeout: urllib3.Timeout,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Send one request; return the response, whatever its status.

        With *stream*, do not wait for its body.
        """
        sent = self.headers.copy()
        for name, value in (headers or {}).items():
            sent[name] = value
        return self.pool.request(
            method,
            f"{self.server}{path}",
            body=body,
            headers=sent,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=not stream,
        )


class Connection:
    """The connections to one server, which all copies of an `ApiServer` share.

    They are closed with the last of these copies.
    """

    def __init__(
        self, access: Access, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._access = access
        self._now = now
        self._lock = threading.Lock()
        """Guards the attributes; held only for moments."""
        self._renewal = threading.Lock()
        """Held by the one thread that gets credentials, which may take long: a plugin may wait for a person."""
        self._process = os.getpid()
        self._opened: Opened | None = None
        self.served: frozenset[str] | None = None
        """The API versions that the server serves, such as `batch/v1`; None: not asked yet."""
        self.ask_again_at = 0.0
        """When the server is asked again for a kind that it did not serve, by the clock of `ApiServer`."""
        self._certified = False
        """Whether the connections use a client certificate, whose files may be written anew in place."""
        self._renew_at: datetime | None = None
        self._authenticated = False
        """Whether the latest credentials were not anonymous."""
        self._login_pauses = Backoff(_FIRST_LOGIN_PAUSE, _LONGEST_LOGIN_PAUSE, jitter=0)
        self._refused: tuple[ClusterError, datetime] | None = None
        """The error of the latest attempt to get credentials, and when that is repeated.

        Threads that waited for that attempt have its error, too.
        """
        self.clock = ServiceClock()
        """The clock of the server, told by those who send requests."""
        self.permitted: set[tuple[str, str, str]] = set()
        """Verb, resource and namespace of requests that the server has permitted."""

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._access.server

    def opened(self) -> Opened:
        """Return the current connections, with credentials that have not expired.

        Raises:
            NotAuthenticatedError: There are no credentials.
        """
        if self._process != os.getpid():
            # The sockets are the parent's, and its locks may be taken.
            self._process, self._opened = os.getpid(), None
            self._lock, self._renewal = threading.Lock(), threading.Lock()
        with self._lock:
            opened, due = self._opened, self._is_due()
        if opened is None:
            return self.renew(None)
        if due and self._renewal.acquire(blocking=False):
            # Other threads go on with the present credentials: the server decides whether it accepts them.
            try:
                return self._renewed() if self._is_due() else self._opened or opened
            except ClusterError:
                self._renew_at = self._now() + _RETRY_RENEWAL
            finally:
                self._renewal.release()
        return opened

    def _is_due(self) -> bool:
        return self._renew_at is not None and self._now() >= self._renew_at

    def renew(self, rejected: Opened | None) -> Opened:
        """Return connections other than *rejected*, with new credentials unless another thread was first.

        Raises:
            NotAuthenticatedError: There are no new credentials.
        """
        with self._renewal:
            opened = self._opened
            return opened if opened is not None and opened is not rejected else self._renewed()

    def _renewed(self) -> Opened:
        """Open connections with new credentials; the caller holds `_renewal`."""
        credentials, access = self._credentials(), self._access
        headers = HTTPHeaderDict(credentials.headers)
        certified = credentials.certificate is not None
        with self._lock:
            self._renew_at = credentials.renew_at
            if self._opened is not None and not certified and not self._certified:
                self._opened = replace(self._opened, headers=headers)
                return self._opened
            self._certified = certified
            context = _tls(access, credentials)
            options: dict[str, Any] = {
                "maxsize": 16,
                "ssl_context": context,
                "server_hostname": access.server_name,
                "assert_hostname": access.server_name,
                "socket_options": [*HTTPConnection.default_socket_options, *_KEEPALIVE],
            }
            pool = (
                urllib3.ProxyManager(
                    access.proxy, proxy_headers=proxy_headers(access.proxy), **options
                )
                if access.proxy
                else urllib3.PoolManager(**options)
            )
            server, dial = access.server.rstrip("/"), partial(_dial, access, context)
            self._opened = Opened(pool, server, headers, dial)
            return self._opened

    def _credentials(self) -> Credentials:
        access = self._access
        if self._refused is not None and self._now() < self._refused[1]:
            raise copy.copy(self._refused[0])
        try:
            found = access.credentials()
            if found.anonymous and self._authenticated:
                # A kubeconfig that is being rewritten may have no credentials for a moment.
                raise NotAuthenticatedError(
                    f"There are no credentials for {access.title or access.server} any more.",
                    hint="Log in again.",
                )
        except (NotAuthenticatedError, ClusterUnreachableError) as error:
            if isinstance(error, ClusterUnreachableError):
                self._login_pauses.reset()
            pause = timedelta(seconds=self._login_pauses.next())
            self._refused = copy.copy(error), self._now() + pause
            raise
        self._login_pauses.reset()
        self._refused, self._authenticated = None, not found.anonymous
        return found


def _dial(access: Access, context: ssl.SSLContext, timeout: float) -> socket.socket:
    """Open a connection to the server, through the proxy if there is one."""
    server = parse_url(access.server)
    proxy = parse_url(access.proxy) if access.proxy else None
    secure = server.scheme == "https"
    host, port = _unbracketed(server.host), server.port or (443 if secure else 80)
    options: dict[str, Any] = {
        "timeout": timeout,
        "socket_options": [*HTTPConnection.default_socket_options, *_KEEPALIVE],
        "proxy": proxy,
    }
    if secure:
        options["ssl_context"] = context
        options["server_hostname"] = options["assert_hostname"] = access.server_name
    kind = HTTPSConnection if secure else HTTPConnection
    if access.proxy is None or proxy is None:
        connection = kind(host, port, **options)
    else:
        default = 443 if proxy.scheme == "https" else 80
        connection = kind(_unbracketed(proxy.host), proxy.port or default, **options)
        connection.set_tunnel(
            host, port, proxy_headers(access.proxy), scheme=proxy.scheme or "http"
        )
    connection.connect()
    assert connection.sock is not None
    return connection.sock


def _unbracketed(host: str | None) -> str:
    return (host or "").strip("[]")


def _tls(access: Access, credentials: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.ca)
    except ssl.SSLError as error:
        raise InvalidRequestError(
            f"The CA certificates of {access.title or access.server} are not valid: {error}.",
            hint="Correct them where the cluster is named, such as in the kubeconfig.",
        ) from error
    if access.ca is not None:
        # The CA certificates of many clusters lack extensions that Python requires from 3.13 on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.certificate is not None:
        try:
            # Without a password, OpenSSL would ask for that of an encrypted key in the terminal.
            context.load_cert_chain(*credentials.certificate, password=lambda: "")
        except OSError as error:
            raise NotAuthenticatedError(
                f"The client certificate {credentials.certificate[0]} cannot be used with its key: {error}.",
                hint="Correct it in the kubeconfig, or log in again.",
            ) from error
    return context


_KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
        if hasattr(socket, name)  # macOS has other names.
    ),
]
"""Socket options that detect a lost peer within two minutes."""
