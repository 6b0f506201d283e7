"""Batch requests: many calls in one `multipart/mixed` body."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from kinetic_payload.testing.gcs.answers import Answer, ApiError, invalid
from kinetic_payload.testing.gcs.calls import Call, call_of

MOST_CALLS: Final = 100
_LINES: Final = re.compile(rb"\r?\n")


class _Held:
    """A body that is here already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._data:
            yield self._data


async def answer_batch(call: Call, perform: Callable[[Call], Awaitable[Answer]]) -> Answer:
    """Perform every call of a batch, in order, and answer them in one body."""
    match = re.search(r'boundary="?([^";]+)"?', call.headers.get("content-type", ""))
    if match is None:
        raise invalid("Failed to parse batch request: no boundary.")
    parts = _parts(await call.read(16 * 1024 * 1024), match[1].encode())
    if not parts:
        raise invalid("Failed to parse batch request: no calls.")
    if len(parts) > MOST_CALLS:
        raise invalid(f"The batch has {len(parts)} calls; the maximum is {MOST_CALLS}.")
    body = b""
    boundary = "batch_kinetic"
    for part in parts:
        key, inner = _inner(part, call)
        answer = await perform(inner)
        assert isinstance(answer.body, bytes)
        head = [f"--{boundary}", "Content-Type: application/http"]
        head += [f"Content-ID: <response-{key.strip('<>')}>"] if key else []
        head += ["", f"HTTP/1.1 {answer.status} {'OK' if answer.status < 300 else 'Error'}"]
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        head += [f"{name}: {value}" for name, value in headers.items()]
        body += "\r\n".join([*head, "", ""]).encode() + answer.body + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    return Answer(200, body, {"Content-Type": f"multipart/mixed; boundary={boundary}"})


def _parts(body: bytes, boundary: bytes) -> list[bytes]:
    pieces = (b"\r\n" + body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")).split(
        b"\r\n--" + boundary
    )
    return [piece.removeprefix(b"\r\n") for piece in pieces[1:] if not piece.startswith(b"--")]


def _inner(part: bytes, outer: Call) -> tuple[str, Call]:
    about, request = _split(part)
    line, _, rest = request.lstrip(b"\r\n").partition(b"\r\n")
    words = line.decode("utf-8").split(" ")
    if len(words) < 2:
        raise invalid("Failed to parse batch request: a part holds no request.")
    method, address = words[0], urlsplit(words[1])
    headers, body = _split(rest)
    target = address.path + (f"?{address.query}" if address.query else "")
    given = _headers(headers)
    passed = {k: v for k, v in outer.headers.items() if k in ("authorization", "host")}
    inner = call_of(method, target, {**passed, **given}, _Held(body))
    if inner.operation.startswith("objects.insert") or inner.media or inner.operation == "batch":
        raise ApiError(400, "invalid", "Media and nested batches cannot be in a batch.")
    return _headers(about).get("content-id", ""), inner


def _split(data: bytes) -> tuple[bytes, bytes]:
    if data.startswith(b"\r\n"):
        return b"", data[2:]
    head, _, body = data.partition(b"\r\n\r\n")
    return head, body


def _headers(data: bytes) -> dict[str, str]:
    lines = (line.decode("latin-1").partition(":") for line in _LINES.split(data) if line.strip())
    return {name.strip().lower(): value.strip() for name, _, value in lines}
