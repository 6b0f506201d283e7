"""Downloads over HTTP: redirects, retries, and resuming where a connection broke."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from kinetic_images.credentials import origin
from kinetic_images.errors import (
    DownloadError,
    DownloadLoginError,
    DownloadMissingError,
    DownloadUnavailableError,
)
from kinetic_images.registry.addresses import joined
from kinetic_images.registry.connection import Connections, NoResponseError, Outgoing, Response
from kinetic_payload.threads import check_wanted, pause

Authorization = Callable[[str], str | None]
"""Return the value of the header `Authorization` for a URL; None: no login."""

_T = TypeVar("_T")
_BYTES_PER_TRY: Final = 256 << 10
_MOST_REDIRECTS: Final = 10
_LONGEST_RETRY_AFTER: Final = 30.0
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]+/(?:[0-9]+|\*)")


class Sink(Protocol):
    """Receives the bytes of a download, in order."""

    position: int
    """How many bytes it has."""

    def put(self, data: bytes) -> None:
        """Receive the next bytes."""
        ...

    def restart(self) -> None:
        """Discard all bytes."""
        ...


@dataclass(frozen=True)
class DownloadPolicy:
    """How often a download is tried, and how long it may be silent. Times are in seconds."""

    tries: int = 6
    """Tries that may fail, besides one for each 256 KiB that have arrived."""
    first: float = 0.4
    """The limit of the first pause. Pauses are random below a limit that doubles."""
    longest: float = 8.0
    """The limit of all pauses, unless the server asks for a longer one."""
    read: float = 30.0
    """How long the beginning of a response may take."""
    limit: float = 60.0
    """How long a response may take, besides the time for its bytes at the least rate."""
    least_rate: float = 10e3
    """In bytes per second."""
    pause: Callable[[float], object] = pause
    """The sleep to use."""


class Downloader:
    """Downloads files from indexes of packages. Threads can share it.

    Certificates are verified with `SSL_CERT_FILE` or `REQUESTS_CA_BUNDLE` of *environ*, or those of the
    system, and proxies are those of *environ*; None: of this process. *authorization* is asked with the URL
    of each download; its value is never sent to another server. *addresses* are URLs with what locks leave
    out, such as the query of a signed URL, by the URL in the lock.
    """

    def __init__(
        self,
        *,
        authorization: Authorization = lambda _: None,
        addresses: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        policy: DownloadPolicy | None = None,
    ) -> None:
        self._authorization = authorization
        self._addresses = addresses or {}
        # The certificates are those that uv uses, too.
        certificates = os.environ if environ is None else environ  # noqa: TID251
        self._connections = Connections(certificates, proxies=environ, failure=DownloadError)
        self._policy = policy or DownloadPolicy()

    def fetch(self, url: str, sink: Sink, *, what: str) -> None:
        """Put the bytes of *url* into *sink*, from its position on.

        Messages contain *what*, and of the URL only the host.

        Raises:
            DownloadLoginError: The server requires other credentials (401, 403).
            DownloadUnavailableError: There was no usable response within the policy's tries.
            DownloadMissingError: The server has no such file.
        """
        self._retry(url, what, lambda: self._receive(url, sink, what), lambda: sink.position)

    def size(self, url: str, *, what: str) -> int | None:
        """Return the size of the file at *url* in bytes; None if the server does not name it.

        Raises:
            DownloadUnavailableError: There was no response within the policy's tries.
        """

        def ask() -> int | None:
            try:
                response, pieces = self._request("HEAD", url, {}, what)
            except DownloadError:
                return None  # Some servers refuse HEAD; if it is more than that, `fetch` says so.
            pieces.close()
            length = response.headers.get("Content-Length", "")
            return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None

        return self._retry(url, what, ask, lambda: 0)

    def lacks(self, url: str, *, what: str) -> bool:
        """Return whether the server says that it does not have the file at *url* (404, 410).

        Raises:
            DownloadError: The server did not answer that, as for `fetch`.
        """

        def ask() -> bool:
            try:
                # Not HEAD, which some servers refuse in this way, too.
                self._request("GET", url, {"Range": "bytes=0-0"}, what)[1].close()
            except DownloadMissingError:
                return True
            return False

        return self._retry(url, what, ask, lambda: 0)

    def _retry(self, url: str, what: str, act: Callable[[], _T], progress: Callable[[], int]) -> _T:
        policy = self._policy
        longest, failed, begun = policy.first, 0, progress()
        reached = begun
        while True:
            check_wanted()
            try:
                return act()
            except (NoResponseError, _TransientError) as error:
                if isinstance(error, NoResponseError) and "certificate" in error.reason:
                    raise DownloadUnavailableError(
                        f"Could not download {what}: the certificate of {host_of(url)} is not trusted.",
                        hint="If a proxy inspects connections, set SSL_CERT_FILE to a bundle with its CA.",
                    ) from None
                now = progress()
                if now > reached:
                    longest, reached = policy.first, now
                failed += 1
                if failed >= policy.tries + max(now - begun, 0) // _BYTES_PER_TRY:
                    raise DownloadUnavailableError(
                        f"Could not download {what} from {host_of(url)} in {failed} tries. "
                        f"The last problem was: {error}.",
                        hint="Check the network, and that the index is up; then try again.",
                    ) from None  # The cause's text may contain the URL.
                asked = error.retry_after if isinstance(error, _TransientError) else 0.0
                policy.pause(max(asked, random.uniform(longest / 2, longest)))  # noqa: S311
                longest = min(2 * longest, policy.longest)

    def _receive(self, url: str, sink: Sink, what: str) -> None:
        headers = {"Range": f"bytes={sink.position}-"} if sink.position else {}
        response, pieces = self._request("GET", url, headers, what)
        # Unread bytes are not worth reading only to reuse the connection.
        with closing(pieces):
            if response.status == 206:
                found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
                if found is None or int(found[1]) != sink.position:
                    sink.restart()
                    raise _TransientError("it sent another range than the requested one")
            elif sink.position:
                sink.restart()
                if response.status == 416:
                    raise _TransientError("it does not have the requested range")
            since, received = monotonic(), 0
            for data in pieces:
                assert isinstance(data, bytes)
                received, took = received + len(data), monotonic() - since
                if took > self._policy.limit + received / self._policy.least_rate:
                    raise DownloadUnavailableError(
                        f"Could not download {what}: {host_of(url)} sent only {received} bytes in {took:.0f} s.",
                        hint="Check the network, and that the index is up; then try again.",
                    )
                sink.put(data)

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], what: str
    ) -> tuple[Response, Generator[Response | bytes, None, None]]:
        """Send a request and follow redirects; return a response with status 200, 206 or 416, and its body."""
        first = origin(url)
        login = self._authorization(url)
        here = self._addresses.get(url, url)
        for _ in range(_MOST_REDIRECTS):
            if origin(here)[0] not in ("http", "https") or not origin(here)[1]:
                break
            # Other hosts must not see the credentials.
            own = {} if login is None or origin(here) != first else {"Authorization": login}
            here = _without_userinfo(here)
            sent = {**headers, **own}
            request = Outgoing(method=method, url=here, headers=sent, accepts_encoded=True)
            pieces = self._connections.stream(request, seconds=self._policy.read)
            response = next(pieces)
            assert isinstance(response, Response)
            target = response.headers.get("Location")
            if response.status in (200, 206, 416):
                return response, pieces
            pieces.close()
            if response.status not in _REDIRECTS or target is None:
                raise _refusal(response, here, what)
            here = joined(here, target)
        raise DownloadError(
            f"Could not download {what}: {host_of(url)} redirects endlessly, or to no web address.",
            hint="Check the address of the index.",
        )


class _TransientError(Exception):
    """The next try may succeed."""

    def __init__(self, problem: str, retry_after: float = 0.0) -> None:
        super().__init__(problem)
        self.retry_after = retry_after


def host_of(url: str) -> str:
    """Return host and port of *url*, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _without_userinfo(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=host_of(url)))


def _refusal(response: Response, url: str, what: str) -> Exception:
    status, host = response.status, host_of(url)
    if status in _TRANSIENT:
        asked = response.headers.get("Retry-After", "")
        seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
        return _TransientError(f"HTTP status {status}", min(seconds, _LONGEST_RETRY_AFTER))
    if status in (401, 403):
        return DownloadLoginError(
            f"Could not download {what}: {host} does not permit it (HTTP status {status}).",
            hint=f"Check the credentials for {host} that the index is configured with.",
        )
    if status in (404, 410):
        return DownloadMissingError(
            f"Could not download {what}: {host} does not have the file any more (HTTP status {status}).",
            hint="Resolve the dependencies again: set KINETIC_REBUILD=1.",
        )
    return DownloadError(
        f"Could not download {what}: {host} responded with HTTP status {status}.",
        hint="Check the address of the index.",
    )
