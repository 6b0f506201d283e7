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


def upload_blob(
    client: Client,
    call: Call,
    digest: str,
    size: int,
    open_content: Callable[[], BinaryIO],
    advance: Advance,
) -> None:
    """Upload a blob; see `Repository.upload`."""
    sent = best = 0  # The bytes of the present try, and the most bytes of a try so far.
    failed = False

    def count(more: int) -> None:
        nonlocal sent, best
        sent += more
        best = max(best, sent)
        advance(more)

    def start_again() -> None:
        nonlocal sent, failed
        failed = True
        before, sent = sent, 0
        if before:
            advance(-before)

    def opened() -> BinaryIO:
        start_again()  # A new login may have been necessary in the middle of a try.
        return open_content()

    def attempt(seconds: float) -> None:
        if failed:
            head = Outgoing(method="HEAD", url=client.url(call, f"blobs/{digest}"))
            if client.attempt(call, head, seconds=seconds, accept=(404,)).status != 404:
                return  # The last try succeeded, and only its response was lost.
        session = Outgoing(method="POST", url=client.url(call, "blobs/uploads/"))
        response = client.attempt(call, session, seconds=seconds)
        location = location_of(client, call, session.url, response)
        joint = "&" if urlsplit(location).query else "?"
        request = Outgoing(
            method="PUT",
            url=f"{location}{joint}{urlencode({'digest': digest})}",
            headers={"Content-Type": "application/octet-stream"},
            body=Content(size, opened, count),
        )
        try:
            response = client.attempt(call, request, seconds=seconds, accept=_SESSION_GONE)
            if response.status in _SESSION_GONE:
                raise TransientError(f"the registry ended the upload (status {response.status})")
        except (TransientError, RegistryError):
            start_again()
            cancel(client, call, location)
            raise
        stored = response.headers.get("Docker-Content-Digest", digest)
        if stored != digest:
            raise InvalidImageError(
                f"Could not {call}: the registry stored it as {stored[:100]!r}, not as {digest}."
            )

    client.retried(call, attempt, progress=lambda: best)
    count(size - sent)


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
