"""One HTTP request and its response, with limits of time and size; connections are kept."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urljoin, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, InvalidHeader, LocationValueError, SSLError

from kinetic_payload.errors import KineticError
from kinetic_payload.progress import Advance
from kinetic_payload.proxies import proxy_headers, proxy_of_environment
from kinetic_payload.threads import TimedQueue, check_wanted

CONNECT_LIMIT: Final = 15.0
"""The most seconds of opening a connection, and of sending one piece of a body."""
SILENCE_LIMIT: Final = 30.0
"""The most seconds without a byte in either direction."""
_COMMIT_LIMIT: Final = 120.0
_COMMIT_RATE: Final = 20e6
"""A registry gets so many seconds, and one more per so many bytes, to store an upload."""
_PIECE: Final = 1 << 16
_RECEIVED: Final = 1 << 18
"""The most bytes that are received at a time: each piece passes from one thread to another."""
_POLL: Final = 0.1
_AHEAD: Final = 8
"""How many pieces of a response are read before they are wanted."""
_MOST_REDIRECTS: Final = 10
_LARGEST_REDIRECT: Final = 1 << 16
"""The most bytes of the body of a redirect."""
_CERTIFICATES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.[0-9]+")
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class NoResponseError(Exception):
    """A request got no usable response.

    *transient*: another try may get one. *untrusted*: the server's certificate is not trusted. *sent*: the
    server may have received the request.
    """

    def __init__(
        self,
        reason: str,
        *,
        transient: bool = True,
        untrusted: bool = False,
        sent: bool = True,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.transient = transient
        self.untrusted = untrusted
        self.sent = sent


@dataclass(frozen=True)
class Content:
    """The body of an upload, which is read in pieces."""

    size: int
    open: Callable[[], BinaryIO]
    advance: Advance
    """Counts the bytes that were sent, in the thread that sends them."""

    @property
    def commit(self) -> float:
        """How many seconds the server gets to store it."""
        return _COMMIT_LIMIT + self.size / _COMMIT_RATE


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A request."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | Content | None = None
    accepts_encoded: bool = False
    """Whether a body with a content encoding is wanted as it is. Otherwise it is an error."""


def _nothing() -> Generator[bytes, None, None]:
    yield from ()


@dataclass(frozen=True)
class Response:
    """A response, whatever its status."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """Names in any case."""
    data: bytes = field(repr=False)
    url: str
    """The address that responded."""
    pieces: Generator[bytes, None, None] = field(default_factory=_nothing, repr=False)
    """The body of a response from `Session.open`. Read it to its end, or close it."""

    def read(self, *, most: int, seconds: float) -> Response:
        """Return the response with its body of up to *most* bytes, which arrives within *seconds*.

        Raises:
            NoResponseError: The body is larger or slower, or incomplete.
        """
        data, until = bytearray(), monotonic() + seconds
        with closing(self.pieces) as pieces:
            for piece in pieces:
                data += piece
                if len(data) > most:
                    raise NoResponseError(
                        f"the response has more than {most} bytes", transient=False
                    )
                if monotonic() > until:
                    raise NoResponseError(f"the response took more than {seconds:g} s")
        return replace(self, data=bytes(data))


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of *url*: credentials for one origin are sent to no other.

    The host is empty if *url* is malformed, or not the address of a server.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", "", 0
    return parts.scheme, parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def joined(url: str, location: str) -> str:
    """Return the address of *location*, which a response from *url* names."""
    try:
        return urljoin(url, location)
    except ValueError:  # It is no address; `origin` has no host for it.
        return location


def tls_context(environ: Mapping[str, str], failure: type[KineticError]) -> ssl.SSLContext:
    """Return the settings of TLS with the certificates that *environ* names, or those of the system.

    `SSL_CERT_FILE` precedes `REQUESTS_CA_BUNDLE`; each names a file or a folder.

    Raises:
        KineticError: The certificates cannot be read; the error is a *failure*.
    """
    variable = next((name for name in _CERTIFICATES if environ.get(name)), None)
    if variable is None:
        places = ssl.get_default_verify_paths()
        found = bool(places.cafile)
        if places.capath and not found:
            # OpenSSL finds certificates of a folder by the hash of their subjects.
            with suppress(OSError):
                found = any(_HASHED.fullmatch(each.name) for each in Path(places.capath).iterdir())
        if found:
            return ssl.create_default_context()
        import certifi  # The system has none, as in small images.

        return ssl.create_default_context(cafile=certifi.where())
    path = Path(environ[variable])
    try:
        if path.is_dir():
            return ssl.create_default_context(capath=str(path))
        return ssl.create_default_context(cafile=str(path))
    except OSError as error:  # `SSLError` is one.
        raise failure(
            f"The certificates in {path}, which {variable} names, cannot be read: {error}.",
            hint=f"Correct or unset {variable}.",
        ) from error


class Pools:
    """Connections that are kept for further requests; threads can share them.

    Certificates are verified with `SSL_CERT_FILE` or `REQUESTS_CA_BUNDLE` of *environ*, or those of the system.
    Proxies are those of *proxies*; None: of this process and of the system. Certificates that cannot be read
    are a *failure*. Up to *size* connections to one server are kept.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        failure: type[KineticError],
        proxies: Mapping[str, str] | None = None,
        size: int = 16,
    ) -> None:
        self._environ = environ
        self._failure = failure
        self._proxies = proxies
        self._size = size
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._pools: dict[str | None, urllib3.PoolManager] = {}
        self._tls: ssl.SSLContext | None = None

    def to(self, url: str) -> urllib3.PoolManager:
        """Return the connections for requests to *url*.

        Raises:
            KineticError: The machine's certificates cannot be read.
        """
        proxy = proxy_of_environment(url, self._proxies)
        if self._process != os.getpid():  # The sockets are the parent's, and its lock may be taken.
            self._process, self._lock, self._pools = os.getpid(), threading.Lock(), {}
        with self._lock:
            if proxy not in self._pools:
                if self._tls is None:
                    self._tls = tls_context(self._environ, self._failure)
                options: dict[str, Any] = {"maxsize": self._size, "ssl_context": self._tls}
                self._pools[proxy] = (
                    urllib3.PoolManager(16, **options)
                    if proxy is None
                    else urllib3.ProxyManager(
                        proxy, 16, proxy_headers=proxy_headers(proxy), **options
                    )
                )
            return self._pools[proxy]


class Session:
    """Sends requests over `Pools`, from any thread."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        failure: type[KineticError],
        proxies: Mapping[str, str] | None = None,
    ) -> None:
        self._failure = failure
        self._pools = Pools(environ, failure=failure, proxies=proxies)

    def open(
        self,
        request: Outgoing,
        *,
        seconds: float,
        check: Callable[[str], object] | None = None,
    ) -> Response:
        """Send *request* and return the response; its body is in its `pieces`.

        An upload has no limit of time as long as it makes progress. This call ends within a moment if the
        work of this thread is stopped. Redirects are followed, and credentials stay at the first origin:
        `check(url)` raises an error if no redirect may lead to *url*; without it, none is followed.

        Raises:
            NoResponseError: Nothing was received for too long, or there are too many redirects.
            KineticError: The machine's certificates cannot be read.
        """
        home = origin(request.url)
        for _ in range(_MOST_REDIRECTS + 1):
            events = self._events(request, seconds)
            try:
                head = cast("Response", next(events))
            except NoResponseError as error:
                if origin(request.url) != home:
                    where = f"{urlsplit(request.url).hostname}, to which it redirects"
                    error.reason = f"{where}: {error.reason}"
                raise
            response = replace(head, pieces=cast("Generator[bytes, None, None]", events))
            target = response.headers.get("Location")
            if check is None or response.status not in _REDIRECTS or target is None:
                return response
            length = response.headers.get("Content-Length", "")
            if length.isdigit() and int(length) <= _LARGEST_REDIRECT:
                # Read, so that the connection is kept: registries redirect each blob.
                with suppress(NoResponseError):
                    response.read(most=_LARGEST_REDIRECT, seconds=seconds)
            events.close()
            target = joined(request.url, target)
            check(target)
            headers = dict(request.headers)
            if origin(target) != home:
                headers.pop("Authorization", None)
            request = replace(request, url=target, headers=headers)
        raise NoResponseError(f"more than {_MOST_REDIRECTS} redirects", transient=False)

    def _events(self, request: Outgoing, seconds: float) -> Generator[Response | bytes, None, None]:
        """Send *request*; yield the response without its body, then the pieces of its body."""
        exchange = _Exchange(
            self._pools.to(request.url), request, min(seconds, SILENCE_LIMIT), self._failure
        )
        threading.Thread(target=exchange.run, name="kinetic-http", daemon=True).start()
        try:
            yield from exchange.events(seconds)
        finally:
            exchange.abandon()


@dataclass
class _Exchange:
    """One request in a thread of its own, because nothing else ends every wait: DNS, TLS, slow bytes."""

    _pool: urllib3.PoolManager
    _request: Outgoing
    _silence: float
    _failure: type[KineticError]
    _events: TimedQueue[Response | bytes | BaseException | None] = field(default_factory=TimedQueue)
    _wanted: SimpleQueue[bool] = field(default_factory=SimpleQueue)
    _abandoned: bool = False
    _sent: int = 0
    _content_error: BaseException | None = None
    """What reading or counting the content raised, which is no failure of the connection."""

    def abandon(self) -> None:
        """Let the thread end as soon as it can."""
        self._abandoned = True
        self._wanted.put(False)

    def events(self, seconds: float) -> Iterator[Response | bytes]:
        for _ in range(_AHEAD):
            self._wanted.put(True)
        body = self._request.body
        until, sent = monotonic() + seconds, 0
        while True:
            try:
                found = self._events.get(_POLL)
            except Empty:
                check_wanted()
                if isinstance(body, Content) and self._sent != sent:
                    sent = self._sent
                    until = monotonic() + (body.commit if sent >= body.size else SILENCE_LIMIT)
                if monotonic() > until:
                    raise NoResponseError("there was no response in time") from None
                continue
            if isinstance(found, BaseException):
                raise found
            if found is None:
                return
            yield found
            check_wanted()
            until = monotonic() + SILENCE_LIMIT
            self._wanted.put(True)

    def run(self) -> None:
        try:
            self._run()
            self._events.put(None)
        except (HTTPError, http.client.HTTPException, OSError) as error:
            self._events.put(self._content_error or no_response(error))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._events.put(error)

    def _run(self) -> None:
        request, body = self._request, self._request.body
        headers = {"Accept-Encoding": "identity", "User-Agent": "kinetic", **request.headers}
        read_limit = body.commit if isinstance(body, Content) else self._silence
        if isinstance(body, Content):
            headers["Content-Length"] = str(body.size)
        elif request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(body or b""))
        response = self._pool.request(
            request.method,
            request.url,
            body=self._pieces(body) if isinstance(body, Content) else body,
            headers=headers,
            timeout=urllib3.Timeout(connect=CONNECT_LIMIT, read=read_limit),
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            encoding = response.headers.get("Content-Encoding", "identity").lower()
            if encoding != "identity" and not request.accepts_encoded:
                # Compressed content has another digest, and any size once it is expanded.
                raise NoResponseError(
                    "the response is compressed, which was not asked for", transient=False
                )
            self._events.put(Response(response.status, response.headers, b"", request.url))
            while self._wanted.get() and not self._abandoned:
                piece = response.read1(_RECEIVED)
                if not piece:
                    response.release_conn()
                    return
                self._events.put(piece)
        finally:
            if not response.closed:
                response.close()

    def _pieces(self, content: Content) -> Iterator[bytes]:
        try:
            with content.open() as file:
                while self._sent < content.size:
                    if self._abandoned:
                        raise NoResponseError("the request was abandoned")
                    piece = file.read(min(_PIECE, content.size - self._sent))
                    if not piece:
                        raise self._failure(
                            f"The content to upload ended after {self._sent} of {content.size} bytes.",
                            hint="It changed meanwhile. Start again.",
                        )
                    yield piece
                    self._sent += len(piece)
                    content.advance(len(piece))
        except GeneratorExit:
            raise
        except BaseException as error:
            self._content_error = error
            raise


@contextmanager
def connection_errors() -> Iterator[None]:
    """Translate what urllib3 raises to `NoResponseError`."""
    try:
        yield
    except (HTTPError, http.client.HTTPException, OSError) as error:
        raise no_response(error) from error


def no_response(error: Exception) -> NoResponseError:
    """Translate what urllib3 raises."""
    found = list(causes(error))
    malformed = any(
        # The base class itself stands for too many headers.
        isinstance(cause, http.client.LineTooLong | InvalidHeader | LocationValueError)
        or type(cause) is http.client.HTTPException
        for cause in found
    )
    untrusted = is_untrusted(error)
    text = cause_text(error)
    if any(isinstance(cause, LocationValueError) for cause in found):
        text = "the address is not valid"  # It may contain a signature.
    if untrusted:
        text = f"its certificate is not trusted ({text})"
    return NoResponseError(
        text, transient=not (malformed or untrusted), untrusted=untrusted, sent=not untrusted
    )


def is_untrusted(error: BaseException) -> bool:
    """Return whether *error* means that a server's certificate is not trusted, which retries do not change."""
    return any(
        isinstance(cause, ssl.SSLCertVerificationError)
        # urllib3 compares names itself where OpenSSL does not.
        or (isinstance(cause, SSLError) and "doesn't match" in str(cause))
        for cause in causes(error)
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over *error* and the errors that it wraps, as arguments, reasons or causes, outermost first."""
    found: list[BaseException] = [error]
    for each in found:
        yield each
        inner = (*each.args, getattr(each, "reason", None), each.__cause__)
        found += [one for one in inner if isinstance(one, BaseException) and one not in found]


def cause_text(error: BaseException) -> str:
    """Return the innermost message, in one line, without what libraries wrap it in."""
    *_, last = causes(error)
    return (" ".join(str(last).split()) or type(last).__name__)[:300].rstrip(".")
