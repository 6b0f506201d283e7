"""Uploads of blobs: one session and one request per blob, repeated as a whole after a failure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Final
from urllib.parse import urlencode, urlsplit

from kinetic_images.errors import (
    InvalidImageError,
    RegistryError,
    RegistryLoginError,
    RegistryPermissionError,
)
from kinetic_images.registry.addresses import shown
from kinetic_images.registry.client import Client
from kinetic_images.registry.refusals import Call
from kinetic_payload.http.retry import TransientError
from kinetic_payload.http.session import Content, Outgoing, Response, joined, origin
from kinetic_payload.progress import Advance

_CANCEL_LIMIT: Final = 3.0
"""The most seconds of cancelling a session. The registry removes abandoned ones itself."""
_SESSION_GONE: Final = frozenset({404, 416})
"""Statuses of a session that the registry no longer knows, or that has bytes already."""


def mount(client: Client, call: Call, digest: str) -> bool:
    """Take the blob *digest* from the repository `call.other`; return whether the registry did that."""
    query = urlencode({"mount": digest, "from": call.other})
    request = Outgoing(method="POST", url=client.url(call, f"blobs/uploads/?{query}"))
    try:
        response = client.send(call, request, accept=(404, 405))
    except (RegistryLoginError, RegistryPermissionError):
        return False  # Perhaps only the other repository is not readable: an upload shows.
    if response.status == 202:
        with suppress(RegistryError, TransientError):
            _cancel(client, call, _location(client, call, request.url, response))
    return response.status == 201


def check(client: Client, call: Call) -> None:
    """Begin an upload and cancel it: the registry says whether it accepts one.

    Raises:
        RegistryError: It does not.
    """
    request = Outgoing(method="POST", url=client.url(call, "blobs/uploads/"))
    response = client.send(call, request)
    with suppress(RegistryError, TransientError):
        _cancel(client, call, _location(client, call, request.url, response))


class BlobUpload:
    """One upload of a blob."""

    def __init__(
        self,
        client: Client,
        call: Call,
        digest: str,
        size: int,
        open_content: Callable[[], BinaryIO],
        advance: Advance,
    ) -> None:
        self._client = client
        self._call = call
        self._digest = digest
        self._size = size
        self._open = open_content
        self._advance = advance
        self._sent = 0
        """The bytes of the present try."""
        self._best = 0
        """The most bytes of a try so far."""
        self._failed = False

    def run(self) -> None:
        """Upload; see `Repository.upload`."""
        self._client.retried(self._call, self._try, progress=lambda: self._best)
        self._count(self._size - self._sent)

    def _try(self, seconds: float) -> None:
        call, client = self._call, self._client
        if self._failed and has_blob(client, call, self._digest, seconds):
            return  # The last try succeeded, and only its response was lost.
        session = Outgoing(method="POST", url=client.url(call, "blobs/uploads/"))
        response = client.attempt(call, session, seconds=seconds)
        location = _location(client, call, session.url, response)
        joint = "&" if urlsplit(location).query else "?"
        request = Outgoing(
            method="PUT",
            url=f"{location}{joint}{urlencode({'digest': self._digest})}",
            headers={"Content-Type": "application/octet-stream"},
            body=Content(self._size, self._opened, self._count),
        )
        try:
            response = client.attempt(call, request, seconds=seconds, accept=_SESSION_GONE)
            if response.status in _SESSION_GONE:
                raise TransientError(f"the registry ended the upload (status {response.status})")
        except (TransientError, RegistryError):
            self._start_again()
            with suppress(RegistryError, TransientError):
                _cancel(client, call, location)
            raise
        except BaseException:  # Ctrl-C, for example: a request would delay the end.
            self._start_again()
            raise
        stored = response.headers.get("Docker-Content-Digest", self._digest)
        if stored != self._digest:
            raise InvalidImageError(
                f"Could not {call}: the registry stored it as {stored[:100]!r}, not as {self._digest}."
            )

    def _opened(self) -> BinaryIO:
        self._start_again()  # A new login may have been necessary in the middle of a try.
        return self._open()

    def _count(self, size: int) -> None:
        self._sent += size
        self._best = max(self._best, self._sent)
        self._advance(size)

    def _start_again(self) -> None:
        self._failed = True
        sent, self._sent = self._sent, 0
        if sent:
            self._advance(-sent)


def has_blob(client: Client, call: Call, digest: str, seconds: float | None = None) -> bool:
    """Return whether the repository has the blob; with *seconds*, ask only once.

    Raises:
        TransientError: Another try may succeed; only with *seconds*.
    """
    request = Outgoing(method="HEAD", url=client.url(call, f"blobs/{digest}"))
    if seconds is None:
        response = client.send(call, request, accept=(404,))
    else:
        response = client.attempt(call, request, seconds=seconds, accept=(404,))
    return response.status != 404


def _cancel(client: Client, call: Call, location: str) -> None:
    client.attempt(call, Outgoing(method="DELETE", url=location), seconds=_CANCEL_LIMIT)


def _location(client: Client, call: Call, url: str, response: Response) -> str:
    """Return where an upload continues: on the same server, because credentials are sent there."""
    location = response.headers.get("Location", "")
    if not location:
        raise RegistryError(f"Could not {call}: the registry named no address for the upload.")
    target = joined(url, location)
    if not client.addresses.permits(target) or origin(target) != origin(url):
        raise RegistryError(
            f"Could not {call}: the registry sends the upload to {shown(target)}, to "
            "which no credentials are sent.",
            hint="If a proxy stands before the registry, it must pass on the header Host and X-Forwarded-Proto.",
        )
    return target
