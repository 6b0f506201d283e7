"""Uploads in one request, and the checks of all uploads."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from kinetic_servers.gcs.access import Access
from kinetic_servers.gcs.arguments import check_object_name, json_object, number
from kinetic_servers.gcs.contents import Content
from kinetic_servers.gcs.errors import invalid, required
from kinetic_servers.gcs.resources import object_fields, object_resource
from kinetic_servers.gcs.state import State, check_generation
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer

LARGEST_HEAD = 1024 * 1024
"""The limit of the part of a multipart upload before the media."""


class UploadCalls:
    """Performs uploads in one request."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def insert(self, call: Call) -> Answer:
        """Store an object: `uploadType=media` or `multipart`."""
        kind, media_type = call.arg("uploadType"), call.headers.get("content-type", "")
        if kind == "media":
            given = {"contentType": media_type or "application/octet-stream"}
            return await self._take(call, given, call.chunks())
        if kind != "multipart":
            raise required("Required parameter: uploadType")
        parts = Multipart(media_type, call.chunks())
        given = json_object(await parts.metadata())
        call.name = call.arg("name") or str(given.get("name") or "")
        given.setdefault("contentType", parts.media_type or "application/octet-stream")
        return await self._take(call, given, parts.media())

    async def _take(
        self, call: Call, given: dict[str, Any], chunks: AsyncIterator[bytes]
    ) -> Answer:
        begin(self._state, self._access, call)
        fields = object_fields(given)
        checks = checks_of(given, call)
        incoming = self._state.incoming()
        try:
            async for chunk in chunks:
                await incoming.awrite(chunk)
        except BaseException:
            incoming.discard()
            raise
        content = incoming.finish()
        verify(content, checks)
        # Check again, because the object may have been written meanwhile.
        self._access.demand_overwrite(call, call.bucket, call.name)
        expected = number(call, "ifGenerationMatch")
        stored = self._state.store(call.bucket, call.name, content, fields, expected)
        return json_answer(object_resource(stored, call.base), headers=uploader_headers(call))


def begin(state: State, access: Access, call: Call) -> None:
    """Check name, precondition and permission before any byte is stored."""
    check_object_name(call.name)
    found = state.bucket(call.bucket).objects.get(call.name)
    check_generation(number(call, "ifGenerationMatch"), found)
    access.demand_overwrite(call, call.bucket, call.name)


def checks_of(given: dict[str, Any], call: Call) -> dict[str, str]:
    """Return the checksums that the client sends, in the metadata or in headers."""
    checks = {}
    for key, name in (("crc32c", "crc32c"), ("md5Hash", "md5")):
        if given.get(key):
            checks[name] = str(given[key])
    for part in call.headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name in ("crc32c", "md5"):
            checks[name] = value
    return checks


def verify(content: Content, checks: dict[str, str]) -> None:
    """Refuse bytes that do not match the checksums."""
    if checks.get("crc32c", content.crc32c) != content.crc32c:
        raise invalid(
            f'Provided CRC32C "{checks["crc32c"]}" doesn\'t match calculated CRC32C "{content.crc32c}".'
        )
    if "md5" in checks and checks["md5"] != (found := content.md5_of_all()):
        raise invalid(
            f'Provided MD5 hash "{checks["md5"]}" doesn\'t match calculated MD5 hash "{found}".'
        )


def uploader_headers(call: Call) -> dict[str, str]:
    """Return the headers that Google's upload servers add."""
    key = call.arg("upload_id") or f"media-{id(call):x}"
    return {"X-GUploader-UploadID": key}


class Multipart:
    """The two parts of a `multipart/related` upload, the second one streamed."""

    def __init__(self, content_type: str, chunks: AsyncIterator[bytes]) -> None:
        match = re.search(r'boundary="?([^";]+)"?', content_type)
        if not content_type.startswith("multipart/") or match is None:
            raise _malformed()
        self._delimiter = b"--" + match[1].encode()
        self._chunks = chunks
        self._buffer = b""
        self.media_type = ""

    async def metadata(self) -> bytes:
        """Return the body of the first part, and read the headers of the second."""
        await self._take(self._delimiter)
        await self._headers()
        body = await self._take(b"\n" + self._delimiter)
        self.media_type = (await self._headers()).get("content-type", "")
        return body

    async def media(self) -> AsyncIterator[bytes]:
        """Iterate over the body of the second part."""
        end = b"\r\n" + self._delimiter
        while (at := self._buffer.find(end)) < 0:
            # The buffer may end with the beginning of the boundary: keep as many bytes as that could have.
            keep = len(end) - 1
            if len(self._buffer) > keep:
                yield self._buffer[:-keep]
                self._buffer = self._buffer[-keep:]
            await self._more()
        if at:
            yield self._buffer[:at]
        async for _ in self._chunks:
            pass  # Ignore bytes after the last boundary.

    async def _headers(self) -> dict[str, str]:
        await self._take(b"\n")
        found = {}
        while line := (await self._take(b"\n")).strip():
            name, _, value = line.decode("latin-1").partition(":")
            found[name.strip().lower()] = value.strip()
        return found

    async def _take(self, mark: bytes) -> bytes:
        """Return the bytes before *mark*, and skip the mark."""
        while (at := self._buffer.find(mark)) < 0:
            if len(self._buffer) > LARGEST_HEAD:
                raise _malformed()
            await self._more()
        taken, self._buffer = self._buffer[:at], self._buffer[at + len(mark) :]
        return taken

    async def _more(self) -> None:
        try:
            self._buffer += await anext(self._chunks)
        except StopAsyncIteration:
            raise _malformed() from None


def _malformed() -> RefusedError:
    return RefusedError(400, "badRequest", "Malformed multipart body.")
