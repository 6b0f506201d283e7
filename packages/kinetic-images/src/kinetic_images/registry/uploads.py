"""Uploads of blobs: one session and one request per blob, repeated as a whole after a failure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, Final
from urllib.parse import urlencode, urlsplit

from kinetic_images.errors import (
    InvalidImageError,
    RegistryError,
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
        if self._failed:
            head = Outgoing(method="HEAD", url=client.url(call, f"blobs/{self._digest}"))
            if client.attempt(call, head, seconds=seconds, accept=(404,)).status != 404:
                return  # The last try succeeded, and only its response was lost.
        session = Outgoing(method="POST", url=client.url(call, "blobs/uploads/"))
        response = client.attempt(call, session, seconds=seconds)
        location = location_of(client, call, session.url, response)
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
            cancel(client, call, location)
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


def cancel(client: Client, call: Call, location: str) -> None:
    """Cancel an upload, if that is possible within a moment: the registry removes it later in any case."""
    with suppress(RegistryError, TransientError):
        request = Outgoing(method="DELETE", url=location)
        client.attempt(call, request, seconds=_CANCEL_LIMIT)


def location_of(client: Client, call: Call, url: str, response: Response) -> str:
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
