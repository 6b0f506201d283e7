"""Reading of large blobs as files: verified, and continued after a broken connection."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, cast

from kinetic_images.errors import InvalidImageError
from kinetic_images.registry.client import Client
from kinetic_images.registry.refusals import Call, unavailable
from kinetic_payload.http.retry import TransientError
from kinetic_payload.http.session import SILENCE_LIMIT, Outgoing, Response

if TYPE_CHECKING:
    from typing import BinaryIO

    from _typeshed import WriteableBuffer

_RANGE: Final = 206
_NO_SUCH_RANGE: Final = 416


def open_blob(client: Client, call: Call, digest: str, size: int) -> BinaryIO:
    """Return a file that reads the blob *digest*; see `Repository.open_blob`."""
    return cast("BinaryIO", io.BufferedReader(_BlobReader(client, call, digest, size), 1 << 18))


class _BlobReader(io.RawIOBase):
    def __init__(self, client: Client, call: Call, digest: str, size: int) -> None:
        self._client = client
        self._call = call
        self._digest = digest
        self._size = size
        self._hash = hashlib.sha256()
        self._position = 0
        self._waited = 0.0
        self._left = b""
        self._ended = False
        self._ranges = True
        """Whether the server sends the ranges that it is asked for, as far as is known."""
        self._open = ExitStack()
        self._pieces: Generator[bytes, None, None] | None = None
        self._client.retried(call, self._connect)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._open.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        if not self._left and not self._ended:
            self._left = self._wait()
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

    def _wait(self) -> bytes:
        """Return the next piece of the blob, within the limits of size and rate."""
        policy = self._client.policy
        since = policy.clock()
        piece = self._client.retried(self._call, self._next, progress=lambda: self._position)
        self._waited += policy.clock() - since
        if self._position > self._size:
            raise InvalidImageError(
                f"Could not {self._call}: it has more than its {self._size} bytes."
            )
        if policy.too_slow(self._position, self._waited):
            seen = f"only {self._position} of {self._size} bytes arrived in {self._waited:.0f} s"
            raise unavailable(self._call, seen)
        return piece

    def _next(self, seconds: float) -> bytes:
        """Return the next piece of the blob; nothing at its verified end."""
        if self._pieces is None:
            self._connect(seconds)
        assert self._pieces is not None
        try:
            piece = next(self._pieces, b"")
        except TransientError:
            self._disconnect()
            raise
        self._hash.update(piece)
        self._position += len(piece)
        if not piece:
            self._ended = True
            self._disconnect()
            found = f"sha256:{self._hash.hexdigest()}"
            if found != self._digest:
                raise InvalidImageError(
                    f"Could not {self._call}: its bytes have the digest {found}."
                )
        return piece

    def _connect(self, seconds: float) -> None:
        partial = self._position > 0 and self._ranges
        headers = {"Range": f"bytes={self._position}-"} if partial else {}
        url = self._client.url(self._call, f"blobs/{self._digest}")
        request = Outgoing(method="GET", url=url, headers=headers)
        try:
            response, pieces = self._open.enter_context(
                self._client.streamed(
                    self._call,
                    request,
                    seconds=min(seconds, SILENCE_LIMIT),
                    accept=(_NO_SUCH_RANGE,) if partial else (),
                )
            )
            if partial and not self._fits(response):
                self._ranges = False
                raise TransientError(f"{self._call.host} sent another range than the requested one")
            if not (partial and response.status == _RANGE):
                pieces = _without(pieces, self._position)
        except TransientError:
            self._disconnect()
            raise
        self._pieces = pieces

    def _fits(self, response: Response) -> bool:
        """Return whether *response* is the rest of the blob, or all of it."""
        if response.status != _RANGE:
            return response.status != _NO_SUCH_RANGE
        sent = response.headers.get("Content-Range")
        return sent is None or sent.startswith(f"bytes {self._position}-")

    def _disconnect(self) -> None:
        self._pieces = None
        self._open.close()


def _without(pieces: Generator[bytes, None, None], size: int) -> Generator[bytes, None, None]:
    """Yield *pieces* without their first *size* bytes: the server does not support ranges."""
    for piece in pieces:
        rest = piece[size:]
        size -= min(size, len(piece))
        if rest:
            yield rest
