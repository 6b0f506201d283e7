"""Calls: HTTP requests parsed as operations of the JSON API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, unquote

from kinetic_payload.testing.gcs.answers import ApiError, invalid


class Body(Protocol):
    """The body of a request, which can be read once."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over its bytes as they arrive."""
        ...


@dataclass
class Call:
    """A request for one operation."""

    operation: str
    """Such as `objects.get`. Faults and the log use the same names."""
    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Body
    base: str
    """The server's address, as the client wrote it: `http://host:port`."""
    bucket: str = ""
    name: str = ""
    to_bucket: str = ""
    to_name: str = ""
    principal: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def media(self) -> bool:
        """Whether this is a download."""
        return self.operation == "objects.get.media"

    def arg(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return self.query[name][0] if name in self.query else default

    def number(self, name: str) -> int | None:
        """Return a parameter that must be a number, or None."""
        return whole(self.arg(name), name) if name in self.query else None

    async def read(self, limit: int = 4 * 1024 * 1024) -> bytes:
        """Return the whole body."""
        data = b"".join([chunk async for chunk in self.body.chunks()])
        if len(data) > limit:
            raise ApiError(413, "uploadTooLarge", "Request too large.")
        return data

    async def json(self) -> dict[str, Any]:
        """Return the body as a JSON object."""
        return json_object(await self.read())


def whole(value: Any, name: str) -> int:
    """Parse a number; numbers of 64 bits are sent as text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        raise invalid(f"Invalid value for {name}: '{value}'.") from None


def json_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty for no data, and for `null`, which Go's clients send."""
    if not data.strip():
        return {}
    try:
        found = json.loads(data)
    except ValueError:
        raise ApiError(400, "parseError", "Parse Error") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ApiError(400, "parseError", "Parse Error")
    return found


# `B` and `O` stand for the names of a bucket and an object, `TB` and `TO` for those of a copy's target.
_ROUTES: Final = {
    ("GET", "b"): "buckets.list",
    ("POST", "b"): "buckets.insert",
    ("GET", "b/B"): "buckets.get",
    ("DELETE", "b/B"): "buckets.delete",
    ("GET", "b/B/o"): "objects.list",
    ("POST", "b/B/o"): "objects.insert",
    ("PUT", "b/B/o"): "objects.insert",
    ("GET", "b/B/o/O"): "objects.get",
    ("PATCH", "b/B/o/O"): "objects.patch",
    ("DELETE", "b/B/o/O"): "objects.delete",
    ("POST", "b/B/o/O/compose"): "objects.compose",
    ("POST", "b/B/o/O/copyTo/b/TB/o/TO"): "objects.copy",
    ("POST", "b/B/o/O/rewriteTo/b/TB/o/TO"): "objects.rewrite",
}

_SHAPES: Final = [(method, shape.split("/"), name) for (method, shape), name in _ROUTES.items()]
_PREFIXES: Final = {
    "/storage/v1/": "",
    "/download/storage/v1/": "download",
    "/upload/storage/v1/": "upload",
}
_OTHERS: Final = {
    ("POST", "/token"): "token",
}


def call_of(method: str, target: str, headers: Mapping[str, str], body: Body) -> Call:
    """Parse a request line and its headers (names in lower case) as a call.

    An unknown request has the operation `unknown`.
    """
    path, _, query_text = target.partition("?")
    try:
        query = parse_qs(query_text, keep_blank_values=True, errors="strict")
        operation, names = _route(method, path)
    except UnicodeDecodeError:
        query, operation, names = {}, "malformed", {}
    base = f"http://{headers.get('host', 'localhost')}"
    call = Call(operation, method, path, query, headers, body, base)
    call.bucket, call.name = names.get("B", ""), names.get("O", "")
    call.to_bucket, call.to_name = names.get("TB", ""), names.get("TO", "")
    if operation.startswith("objects.insert") or operation == "objects.get":
        call.operation = _refined_operation(call)
    if call.operation.startswith("objects.insert") and not call.name:
        call.name = call.arg("name")
    return call


def _route(method: str, path: str) -> tuple[str, dict[str, str]]:
    if path.startswith("/_kinetic/"):
        return "control", {}
    if method == "GET" and (path == "/" or path.startswith("/computeMetadata/v1/")):
        return "metadata", {}
    for prefix in _PREFIXES:
        if path.startswith(prefix):
            parts = path[len(prefix) :].split("/")
            break
    else:
        return _OTHERS.get((method, path), "unknown"), {}
    for wanted, shape, operation in _SHAPES:
        if wanted == method and len(shape) == len(parts):
            names = {
                key: unquote(part, errors="strict")
                for key, part in zip(shape, parts, strict=True)
                if key.isupper()
            }
            fixed = (part for key, part in zip(shape, parts, strict=True) if not key.isupper())
            if list(fixed) == [key for key in shape if not key.isupper()]:
                return operation, names
    return "unknown", {}


def _refined_operation(call: Call) -> str:
    """Return the operation that the query and the headers select."""
    uploads = call.path.startswith("/upload/")
    if call.operation == "objects.get":
        wanted = call.arg("alt") == "media" or call.path.startswith("/download/")
        return "objects.get.media" if wanted else "objects.get"
    if "upload_id" in call.query and uploads:
        if call.headers.get("content-range", "").replace(" ", "").startswith("bytes*/"):
            return "objects.insert.status"
        return "objects.insert.chunk"
    if not uploads or (call.method == "PUT" and call.arg("uploadType") != "media"):
        return "unknown"
    return "objects.insert.start" if call.arg("uploadType") == "resumable" else "objects.insert"
