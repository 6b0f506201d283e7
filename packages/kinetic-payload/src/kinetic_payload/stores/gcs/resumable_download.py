"""Downloads of one generation of an object, resumed where the connection broke."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import urllib3

from kinetic_payload.errors import StoreError
from kinetic_payload.http.session import NoResponseError, connection_errors
from kinetic_payload.stores.gcs.bucket import Bucket
from kinetic_payload.stores.gcs.checksums import from_header
from kinetic_payload.stores.gcs.errors import NotFoundError, ResponseError
from kinetic_payload.stores.gcs.interception import intercepted
from kinetic_payload.stores.gcs.translation import is_no_bucket
from kinetic_payload.threads import check_wanted

BLOCK: Final = 256 << 10
_OLD_BLOCK: Final = 16 << 10
# `isdigit` also accepts "²", which `int` does not.
_WHOLE: Final = re.compile(r"[0-9]+")
_CONTENT_RANGE: Final = re.compile(r"bytes (?:([0-9]+)-[0-9]+|\*)/([0-9]+)")


class ReplacedError(Exception):
    """The generation that was being read does not exist any more."""


@dataclass(frozen=True)
class Head:
    """The headers of the first response, about the whole object."""

    size: int
    generation: int | None
    """None if a refusal of the range (416) does not include it."""
    crc32c: int | None

    @classmethod
    def of(cls, response: urllib3.BaseHTTPResponse, position: int, generation: int | None) -> Head:
        """Parse the headers of a response to a request for the bytes from *position* on.

        With a *generation*, that one was requested.

        Raises:
            NoResponseError: The headers are not the service's, or contradict each other or the request.
        """
        headers, status = response.headers, response.status
        stated = headers.get("X-Goog-Generation", "")
        crc32c = from_header(headers.get("X-Goog-Hash"))
        match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        known = _WHOLE.fullmatch(stated) is not None
        if not (known and crc32c is not None if status in (200, 206) else known or match):
            raise intercepted(response, "an object")
        size = match[2] if match else headers.get("Content-Length", "")
        if not _WHOLE.fullmatch(size):
            raise NoResponseError("a response without a size")
        stored = headers.get("X-Goog-Stored-Content-Length", size)
        if status in (200, 206) and stored != size:
            raise NoResponseError(f"a response of {size} bytes for an object of {stored}")
        if status == 206 and (match is None or int(match[1] or -1) != position):
            raise NoResponseError(f"bytes from another offset than {position}")
        if status == 416 and int(size) > position:
            raise NoResponseError(f"no bytes from {position} on, of {size}")
        if known and generation is not None and int(stated) != generation:
            raise NoResponseError(f"the generation {stated} instead of {generation}")
        return cls(int(size), int(stated) if known else None, crc32c)


Put = Callable[[int, bytes], object]
"""Receives bytes that begin at an offset in the object, in order."""


def fetch(
    bucket: Bucket,
    name: str,
    put: Put,
    *,
    start: int = 0,
    end: int | None = None,
    generation: int | None = None,
    opened: Callable[[Head], object] = lambda _: None,
) -> Head:
    """Pass the bytes from *start* up to *end* to *put*, of *generation* or the current one.

    Before, *opened* is called once, with the headers.

    Raises:
        ReplacedError: The generation does not exist any more.
    """
    transfer = _Transfer(bucket, name, put, start, end, generation, opened)
    action = f"read {name!r}"
    return bucket.run(action, transfer.attempt, progress=lambda: transfer.position)


@dataclass
class _Transfer:
    bucket: Bucket
    name: str
    put: Put
    position: int
    end: int | None
    generation: int | None
    opened: Callable[[Head], object]
    head: Head | None = None

    def attempt(self, _: int) -> Head:
        """Continue from the position."""
        try:
            response = self._request()
        except NotFoundError as error:
            if self.generation is None or is_no_bucket(error):
                raise
            raise ReplacedError from error
        except ResponseError as error:
            if error.code != 416 or error.response is None:
                raise
            # The range is empty, as every range of an empty object is.
            return self._open(error.response)
        try:
            if self.position and response.status == 200:
                Head.of(response, 0, self.generation)
                raise StoreError(
                    f"The service does not support ranges: it sent all of {self.name!r}."
                )
            head = self._open(response)
            end = head.size if self.end is None else min(self.end, head.size)
            for data in _blocks(response, end - self.position):
                check_wanted()
                self.put(self.position, data)
                self.position += len(data)
            if self.position < end:
                raise NoResponseError(f"{end - self.position} bytes are missing")
            return head
        finally:
            response.close()

    def _request(self) -> urllib3.BaseHTTPResponse:
        bucket = self.bucket
        url = bucket.connection.object_url(
            bucket.name, self.name, api="/download", alt="media", generation=self.generation
        )
        headers = {}
        if self.position or self.end is not None:
            last = "" if self.end is None else self.end - 1
            headers["Range"] = f"bytes={self.position}-{last}"
        return bucket.send("GET", url, headers=headers, stream=True)

    def _open(self, response: urllib3.BaseHTTPResponse) -> Head:
        head = Head.of(response, self.position, self.generation)
        if self.head is None:
            self.head = head
            self.opened(head)
            self.generation = head.generation
        return self.head


def _blocks(response: urllib3.BaseHTTPResponse, size: int) -> Iterator[bytes]:
    # `read` waits for the whole block, and loses its beginning if the connection breaks. `read1` is missing in
    # urllib3 1, which a project may require.
    most = BLOCK if hasattr(response, "read1") else _OLD_BLOCK
    read = getattr(response, "read1", response.read)
    while size > 0:
        with connection_errors():
            data: bytes = read(min(most, size), decode_content=False)
        if not data:
            return
        size -= len(data)
        yield data
