"""Reading of large blobs as files: verified, and continued after a broken connection."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, cast

from kinetic_images.errors import InvalidImageError
from kinetic_images.registry.client import Client, translated
from kinetic_images.registry.refusals import Call, Refusal, error_of
from kinetic_payload.http.retry import TransientError
from kinetic_payload.http.session import SILENCE_LIMIT, Outgoing

if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import WriteableBuffer


def open_blob(client: Client, call: Call, digest: str, size: int) -> BinaryIO:
    """Return a file that reads the blob *digest*; see `Repository.open_blob`."""
    pieces = _verified(client, call, digest, size)
    next(pieces)  # Connected: that there is no such blob is an error of this call.
    return cast("BinaryIO", io.BufferedReader(_Reader(pieces), 1 << 18))


class _Reader(io.RawIOBase):
    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._pieces.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._left = self._left or next(self._pieces, b"")
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _verified(client: Client, call: Call, digest: str, size: int) -> Generator[bytes, None, None]:
    """Yield nothing once when connected, then the pieces of the blob, within the limits of size and rate."""
    sha, position, waited, policy = hashlib.sha256(), 0, 0.0, client.policy
    body: Generator[bytes, None, None] | None = None

    def connect(seconds: float) -> Generator[bytes, None, None]:
        headers = {"Range": f"bytes={position}-"} if position else {}
        request = Outgoing(method="GET", url=client.url(call, f"blobs/{digest}"), headers=headers)
        seconds = min(seconds, SILENCE_LIMIT)
        response = client.attempt(call, request, seconds=seconds, most=None)
        # Another range than the requested one would show in the digest.
        whole = position and response.status != 206
        return _without(response.pieces, position) if whole else response.pieces

    def receive(seconds: float) -> bytes:
        nonlocal body
        body = body or connect(seconds)
        try:
            with translated(call):
                return next(body, b"")
        except TransientError:
            body = None
            raise

    def received() -> int:
        return position

    try:
        body = client.retried(call, connect)
        yield b""
        while True:
            since = policy.clock()
            piece = client.retried(call, receive, progress=received)
            waited += policy.clock() - since
            sha.update(piece)
            position += len(piece)
            if position > size:
                raise InvalidImageError(f"Could not {call}: it has more than its {size} bytes.")
            if policy.too_slow(position, waited):
                seen = f"only {position} of {size} bytes arrived in {waited:.0f} s"
                raise error_of(Refusal(503), call, seen=seen)
            if not piece:
                break
            yield piece
        found = f"sha256:{sha.hexdigest()}"
        if found != digest:
            raise InvalidImageError(f"Could not {call}: its bytes have the digest {found}.")
    finally:
        if body is not None:
            body.close()


def _without(pieces: Generator[bytes, None, None], size: int) -> Generator[bytes, None, None]:
    """Yield *pieces* without their first *size* bytes: the server does not support ranges."""
    with closing(pieces):
        for piece in pieces:
            rest = piece[size:]
            size -= min(size, len(piece))
            if rest:
                yield rest
