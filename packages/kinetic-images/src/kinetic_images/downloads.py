"""Downloads over HTTP: redirects, retries, and resuming where a connection broke."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from time import monotonic
from typing import BinaryIO, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from kinetic_images.errors import (
    DownloadError,
    DownloadLoginError,
    DownloadUnavailableError,
)
from kinetic_payload.http.retry import (
    TRANSIENT_STATUSES,
    GaveUpError,
    RetryPolicy,
    TransientError,
    retry_after,
)
from kinetic_payload.http.session import (
    SILENCE_LIMIT,
    NoResponseError,
    Outgoing,
    Response,
    Session,
    origin,
)
from kinetic_payload.progress import Advance

Authorization = Callable[[str], str | None]
"""Return the value of the header `Authorization` for a URL; None: no login."""

_T = TypeVar("_T")
_LOGIN: Final = (
    DownloadLoginError,
    "does not permit it",
    "Check the credentials for {host} that the index is configured with.",
)
_MISSING: Final = (
    DownloadError,
    "does not have the file any more",
    "Resolve the dependencies again: set KINETIC_REBUILD=1.",
)
_REFUSED: Final = (DownloadError, "refuses it", "Check the address of the index.")
_REFUSALS: Final[Mapping[int, tuple[type[DownloadError], str, str]]] = {
    **dict.fromkeys((401, 403), _LOGIN),
    **dict.fromkeys((404, 410), _MISSING),
}
_CHUNK: Final = 1 << 20
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-[0-9]+/(?:[0-9]+|\*)")


class DownloadFile:
    """The file of a download that may have been interrupted earlier.

    *stream* is read, then written. It raises *too_large* beyond *most* bytes. *advance* counts the bytes.
    """

    def __init__(
        self, stream: BinaryIO, advance: Advance, *, most: int, too_large: DownloadError
    ) -> None:
        self._stream = stream
        self._advance = advance
        self._most = most
        self._too_large = too_large
        self.position = 0
        self.sha = hashlib.sha256()
        while data := stream.read(_CHUNK):
            self.sha.update(data)
            self.position += len(data)
        if self.position > self._most:
            self.restart()
        advance(self.position)

    def put(self, data: bytes) -> None:
        """Append *data*."""
        if self.position + len(data) > self._most:
            self.restart()
            raise self._too_large
        self.position += len(data)
        self.sha.update(data)
        self._advance(len(data))
        view = memoryview(data)
        while view:
            view = view[self._stream.write(view) :]

    def restart(self) -> None:
        """Discard all bytes."""
        self._advance(-self.position)
        self.position = 0
        self.sha = hashlib.sha256()
        self._stream.seek(0)
        self._stream.truncate()


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
        policy: RetryPolicy | None = None,
    ) -> None:
        self._authorization = authorization
        self._addresses = addresses or {}
        # The certificates are those that uv uses, too.
        certificates = os.environ if environ is None else environ  # noqa: TID251
        self._session = Session(certificates, proxies=environ, failure=DownloadError)
        self._policy = policy or RetryPolicy()

    def fetch(self, url: str, sink: DownloadFile, *, what: str) -> None:
        """Put the bytes of *url* into *sink*, from its position on.

        Messages contain *what*, and of the URL only the host.

        Raises:
            DownloadLoginError: The server requires other credentials (401, 403).
            DownloadUnavailableError: There was no usable response within the policy's time.
            DownloadError: The server has no such file.
        """
        since, received = monotonic(), 0

        def count(size: int) -> None:
            """Count the bytes of all tries: a server must not send one byte a try for ever."""
            nonlocal received
            received, took = received + size, monotonic() - since
            if self._policy.too_slow(received, took):
                raise DownloadUnavailableError(
                    f"Could not download {what}: {host_of(url)} sent only {received} bytes in {took:.0f} s.",
                    hint="Check the network, and that the index is up; then try again.",
                )

        def receive(seconds: float) -> None:
            headers = {"Range": f"bytes={sink.position}-"} if sink.position else {}
            response = self._request("GET", url, headers, what, seconds)
            # Unread bytes are not worth reading only to reuse the connection.
            with closing(response.pieces) as pieces:
                if response.status == 206:
                    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
                    if found is None or int(found[1]) != sink.position:
                        sink.restart()
                        raise TransientError("it sent another range than the requested one")
                elif sink.position:
                    sink.restart()
                    if response.status == 416:
                        raise TransientError("it does not have the requested range")
                for data in pieces:
                    count(len(data))
                    sink.put(data)

        self._retry(url, what, receive, lambda: sink.position)

    def size(self, url: str, *, what: str) -> int | None:
        """Return the size of the file at *url* in bytes; None if the server does not name it.

        Raises:
            DownloadUnavailableError: There was no response within the policy's time.
        """

        def ask(left: float) -> int | None:
            try:
                response = self._request("HEAD", url, {}, what, left)
            except DownloadError:
                return None  # Some servers refuse HEAD; if it is more than that, `fetch` says so.
            response.pieces.close()
            length = response.headers.get("Content-Length", "")
            return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None

        return self._retry(url, what, ask)

    def _retry(
        self,
        url: str,
        what: str,
        act: Callable[[float], _T],
        progress: Callable[[], int] = lambda: 0,
    ) -> _T:
        failed = f"Could not download {what}"

        def once(seconds: float) -> _T:
            try:
                return act(min(seconds, SILENCE_LIMIT))
            except NoResponseError as error:
                if error.untrusted:
                    raise DownloadUnavailableError(
                        f"{failed}: the certificate of {host_of(url)} is not trusted.",
                        hint="If a proxy inspects connections, set SSL_CERT_FILE to a bundle with its CA.",
                    ) from None
                if not error.transient:
                    raise DownloadError(
                        f"{failed} from {host_of(url)}: {error.reason}.",
                        hint="Check the address of the index.",
                    ) from None
                raise TransientError(error.reason) from error

        try:
            return self._policy.run(once, progress=progress)
        except GaveUpError as error:
            raise DownloadUnavailableError(
                f"{failed} from {host_of(url)}: {error.last.reason} (tried for {error.seconds:g} s).",
                hint="Check the network, and that the index is up; then try again.",
            ) from None  # The cause's text may contain the URL.

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], what: str, seconds: float
    ) -> Response:
        """Send a request and follow redirects; return a response with status 200, 206 or 416."""

        def check(target: str) -> None:
            if origin(target)[0] not in ("http", "https") or not origin(target)[1]:
                raise DownloadError(
                    f"Could not download {what}: {host_of(url)} redirects to no web address.",
                    hint="Check the address of the index.",
                )

        login, here = self._authorization(url), self._addresses.get(url, url)
        # Other hosts must not see the credentials.
        own = {} if login is None or origin(here) != origin(url) else {"Authorization": login}
        check(here)
        here = urlunsplit(urlsplit(here)._replace(netloc=host_of(here)))
        request = Outgoing(
            method=method, url=here, headers={**headers, **own}, accepts_encoded=True
        )
        response = self._session.open(request, seconds=seconds, check=check)
        if response.status not in (200, 206, 416):
            response.pieces.close()
            status, host = response.status, host_of(response.url)
            if status in TRANSIENT_STATUSES:
                seconds = retry_after(response.headers)
                raise TransientError(f"HTTP status {status}", retry_after=seconds)
            kind, words, hint = _REFUSALS.get(status, _REFUSED)
            raise kind(
                f"Could not download {what}: {host} {words} (HTTP status {status}).",
                hint=hint.format(host=host),
            )
        return response


def host_of(url: str) -> str:
    """Return host and port of *url*, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2]
