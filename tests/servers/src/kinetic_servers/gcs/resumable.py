"""Resumable uploads: sessions that receive chunks."""

from __future__ import annotations

import re
import secrets
from typing import Final, NamedTuple
from urllib.parse import quote

from kinetic_servers.gcs.access import Access
from kinetic_servers.gcs.arguments import json_of, number
from kinetic_servers.gcs.errors import invalid
from kinetic_servers.gcs.resources import object_fields, object_resource
from kinetic_servers.gcs.state import State, Upload
from kinetic_servers.gcs.uploads import begin, checks_of, uploader_headers, verify
from kinetic_servers.http.messages import Answer, Call, RefusedError, json_answer

QUANTUM: Final = 256 * 1024
"""Every chunk but the last is a multiple of this; an interrupted chunk is truncated to a multiple."""

_CONTENT_RANGE: Final = re.compile(r"bytes\s*(?:(\d+)-(\d+)|(\*))/(\d+|\*)")


class Sent(NamedTuple):
    """The `Content-Range` of a request: the offsets of its bytes, and the total size if known."""

    start: int | None
    """None, as `end`: the request has no bytes, and only queries the status."""
    end: int | None
    total: int | None


class ResumableCalls:
    """Performs operations on resumable uploads."""

    def __init__(self, state: State, access: Access) -> None:
        self._state = state
        self._access = access

    async def start(self, call: Call) -> Answer:
        """Begin a session, and return its address."""
        given = await json_of(call)
        name = call.name = call.arg("name") or str(given.get("name") or "")
        begin(self._state, self._access, call)
        media_type = call.headers.get("x-upload-content-type", "application/octet-stream")
        given.setdefault("contentType", media_type)
        announced = call.headers.get("x-upload-content-length", "")
        key = "AB" + secrets.token_urlsafe(48)
        self._state.uploads[key] = Upload(
            call.bucket,
            name,
            number(call, "ifGenerationMatch"),
            object_fields(given),
            self._state.incoming(),
            call.principal,
            declared=int(announced) if announced.isdigit() else None,
            checks=checks_of(given, call),
        )
        place = f"{call.base}/upload/storage/v1/b/{call.bucket}/o"
        query = f"uploadType=resumable&name={quote(name, safe='')}&upload_id={key}"
        return Answer(headers={"Location": f"{place}?{query}", "X-GUploader-UploadID": key})

    async def chunk(self, call: Call) -> Answer:
        """Receive a chunk; the last one creates the object."""
        upload = self._upload_of(call)
        sent = _parse_content_range(call)
        if upload.finished is None:
            await self._receive(upload, sent, call)
        return self._answer(upload, sent, call)

    async def status(self, call: Call) -> Answer:
        """Return how many bytes arrived; create the object if none is missing."""
        upload = self._upload_of(call)
        async with upload.lock:
            return self._answer(upload, _parse_content_range(call), call)

    def _upload_of(self, call: Call) -> Upload:
        upload = self._state.uploads.get(call.arg("upload_id"))
        if upload is None or upload.gone == 404:
            raise RefusedError(404, "notFound", "The upload session does not exist.")
        if upload.gone is not None:
            raise RefusedError(upload.gone, "gone", "The upload session has expired.")
        call.name = upload.name
        # Anyone who knows the session's address may continue it, with the permissions of its creator.
        call.principal = upload.principal
        return upload

    async def _receive(self, upload: Upload, sent: Sent, call: Call) -> None:
        if sent.start is None or sent.end is None:
            raise invalid("Failed to parse Content-Range header.")
        turn = upload.turn = upload.turn + 1
        async with upload.lock:  # An older request may still be writing.
            have = upload.incoming.size
        if sent.start > have:
            raise invalid(
                f"Invalid request. According to the Content-Range header, the upload offset is {sent.start} "
                f"byte(s), which exceeds already uploaded size of {have} byte(s)."
            )
        if sent.total is not None and upload.declared not in (None, sent.total):
            raise invalid(
                f"Invalid request. The size of the upload was declared as {upload.declared} byte(s), "
                f"but the Content-Range header says {sent.total} byte(s)."
            )
        promised = sent.end + 1 - sent.start
        last = sent.end + 1 == sent.total
        if not last and promised < QUANTUM:
            raise invalid(
                "Invalid request. The number of bytes uploaded is required to be equal or greater than "
                f"{QUANTUM}, except for the final request. The received request contained {promised} bytes."
            )
        # Skip bytes that arrived before.
        await self._append(upload, turn, call, have - sent.start, promised, last=last)

    async def _append(
        self, upload: Upload, turn: int, call: Call, skip: int, promised: int, *, last: bool
    ) -> None:
        held, received = b"", 0
        async for data in call.chunks():
            received += len(data)
            passed = min(skip, len(data))
            skip -= passed
            held += data[passed:]
            whole = len(held) - len(held) % QUANTUM
            if whole:
                await _write(upload, turn, held[:whole])
                held = held[whole:]
        if received != promised:
            raise invalid(f"Invalid request. There were {received} byte(s) in the request body.")
        if last and held:
            await _write(upload, turn, held)

    def _answer(self, upload: Upload, sent: Sent, call: Call) -> Answer:
        if upload.finished is None and upload.incoming.size == sent.total:
            self._finish(upload, call)
        headers = uploader_headers(call)
        if upload.finished is not None:
            return json_answer(object_resource(upload.finished, call.base), headers=headers)
        if upload.incoming.size:
            headers["Range"] = f"bytes=0-{upload.incoming.size - 1}"
        return Answer(308, b"", headers)

    def _finish(self, upload: Upload, call: Call) -> None:
        content = upload.incoming.finish()
        checks = {**upload.checks, **checks_of({}, call)}
        try:
            verify(content, checks)
            self._access.demand_overwrite(call, upload.bucket, upload.name)
            upload.finished = self._state.store(
                upload.bucket, upload.name, content, upload.fields, upload.if_generation
            )
        except RefusedError as error:
            if error.status in (400, 412):
                upload.gone = 410  # A wrong checksum or precondition ends the session.
            raise


async def _write(upload: Upload, turn: int, data: bytes) -> None:
    async with upload.lock:
        if upload.turn != turn:
            raise RefusedError(503, "backendError", "Another request continues this upload.")
        await upload.incoming.awrite(data)


def _parse_content_range(call: Call) -> Sent:
    text = call.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(text.strip())
    if match is None:
        raise invalid(f"Failed to parse Content-Range header: '{text}'.")
    total = None if match[4] == "*" else int(match[4])
    if match[3]:
        return Sent(None, None, total)
    start, end = int(match[1]), int(match[2])
    if end < start or (total is not None and end >= total):
        raise invalid(f"Invalid Content-Range header: '{text}'.")
    return Sent(start, end, total)
