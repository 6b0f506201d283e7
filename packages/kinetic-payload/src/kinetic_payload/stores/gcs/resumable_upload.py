"""Uploads of large files in sessions of the service, resumed where a connection broke.

Google's library cannot report progress. The protocol is small:
https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import urllib3

from kinetic_payload.errors import IntegrityError, KineticError, StoreError
from kinetic_payload.http.session import NoResponseError
from kinetic_payload.stores.gcs.bucket import FIELDS, NONCE, Bucket, BucketObject, json_object
from kinetic_payload.stores.gcs.checksums import encoded
from kinetic_payload.stores.gcs.errors import NotFoundError, ResponseError
from kinetic_payload.stores.gcs.interception import intercepted
from kinetic_payload.stores.gcs.upload import not_written
from kinetic_payload.stores.gcs.upload_content import Content, ContentChecksum

if TYPE_CHECKING:
    from kinetic_payload.digests import FileCheck
    from kinetic_payload.progress import Advance

_TAIL: Final = 8 << 20
"""The most bytes of the last request, which contains the checksum of the whole object."""
_RANGE: Final = re.compile(r"bytes=0-([0-9]+)")
_MOST_SESSIONS: Final = 5


def upload_large(
    bucket: Bucket,
    name: str,
    content: Content,
    *,
    if_generation: int | None = None,
    progress: Advance | None = None,
    check: FileCheck | None = None,
) -> BucketObject:
    """Write *content* as *name*."""
    count, checksum = progress or (lambda _: None), ContentChecksum(content, check)
    return _Upload(bucket, name, content, if_generation, count, checksum).run()


@dataclass
class _Upload:
    _bucket: Bucket
    _name: str
    _content: Content
    _if_generation: int | None
    _progress: Advance
    _checksum: ContentChecksum
    _url: str = ""
    """The address of the session; empty if there is none."""
    _nonce: str = ""
    """It is stored in the metadata of the object that the session writes."""
    _sessions: int = 0
    _reported: int = 0
    """Bytes reported to *progress*."""
    _furthest: int = 0
    """The furthest offset sent. Sent bytes count as progress once, so that a connection that breaks after an
    hour does not exceed the deadline."""
    _confirmed: int = 0
    """Bytes that the service confirmed, which may be fewer than were sent."""

    def run(self) -> BucketObject:
        written = self._bucket.run(
            f"write {self._name!r}",
            self._attempt,
            progress=lambda: self._furthest + self._confirmed,
        )
        try:
            if written.crc32c not in (None, self._checksum.whole()):
                raise IntegrityError(
                    f"{self._name!r} in gs://{self._bucket.name} has other bytes than were sent.",
                    hint="Upload it again.",
                )
        except KineticError:
            with suppress(StoreError):
                self._bucket.delete(self._name, if_generation=written.generation)
            raise
        self._report(self._content.size)
        return written

    def _attempt(self, _: int) -> BucketObject:
        try:
            # A new session begins at 0; the service knows the offset of any other.
            if not self._url:
                self._begin()
                return self._send(0)
            headers = {"Content-Range": f"bytes */{self._content.size}"}
            response = self._bucket.send("PUT", self._url, headers=headers, body=b"")
            if response.status != 308:  # The service has all bytes.
                return BucketObject.of(json_object(response))
            offset = _confirmed_by(response)
            self._confirmed = max(self._confirmed, offset)
            return self._send(offset)
        except ResponseError as error:
            if not self._url and isinstance(error, NotFoundError):
                raise not_written(self._bucket, error, self._if_generation) from error
            if not self._url or error.code not in (404, 410):
                raise
            if written := self._bucket.own_write(self._name, self._nonce):
                return written  # The session had finished, but its response was lost.
            if self._sessions >= _MOST_SESSIONS:
                raise
            self._url, self._sessions = "", self._sessions + 1
            return self._attempt(0)

    def _begin(self) -> None:
        """Begin a session."""
        url = self._bucket.connection.url(
            self._bucket.name,
            "/o",
            api="/upload",
            uploadType="resumable",
            name=self._name,
            ifGenerationMatch=self._if_generation,
            fields=FIELDS,
        )
        self._nonce = secrets.token_hex(12)
        described = json.dumps({"metadata": {NONCE: self._nonce}}).encode()
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Type": "application/octet-stream",
            "X-Upload-Content-Length": str(self._content.size),
        }
        response = self._bucket.send("POST", url, headers=headers, body=described)
        place = response.headers.get("Location", "")
        # Later requests send the credentials to that address.
        if "upload_id=" not in urlsplit(place).query:
            raise intercepted(response, "an upload session")
        self._url = place

    def _send(self, offset: int) -> BucketObject:
        """Send everything from *offset* on."""
        size = self._content.size
        # Two requests: the last one contains the checksum, which is known only after reading everything.
        last = (size - 1) // _TAIL * _TAIL
        while offset < last:
            confirmed = _confirmed_by(self._put(offset, last, {}))
            if confirmed <= offset:
                raise NoResponseError("bytes were lost")
            offset = confirmed
        if offset >= size:
            # The service has all bytes but no object: sending the last ones again does no harm.
            offset = last
        checksum = {"X-Goog-Hash": f"crc32c={encoded(self._checksum.whole())}"}
        response = self._put(offset, size, checksum)
        if response.status == 308:
            raise NoResponseError("bytes were lost")
        return BucketObject.of(json_object(response))

    def _put(self, start: int, end: int, more: dict[str, str]) -> urllib3.BaseHTTPResponse:

        def blocks() -> Iterator[bytes]:
            self._report(start)
            for block in self._checksum.blocks(start, end):
                yield block
                self._report(self._reported + len(block))

        headers = {
            "Content-Length": str(end - start),
            "Content-Range": f"bytes {start}-{end - 1}/{self._content.size}",
            **more,
        }
        return self._bucket.send("PUT", self._url, headers=headers, body=blocks)

    def _report(self, offset: int) -> None:
        """Report *offset* bytes to *progress*; fewer than before if some were lost."""
        if offset != self._reported:
            self._progress(offset - self._reported)
            self._reported = offset
            self._furthest = max(self._furthest, offset)


def _confirmed_by(response: urllib3.BaseHTTPResponse) -> int:
    """Return how many bytes the service confirmed."""
    match = _RANGE.fullmatch(response.headers.get("Range", ""))
    return int(match[1]) + 1 if match else 0
