"""Requests, responses and refusals as data."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Call:
    """A request. A service fills in the last fields, for faults and the log."""

    method: str
    path: str
    """Without the query, and not unquoted."""
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    """Names in lower case; the values of repeated headers are joined."""
    chunks: Callable[[], AsyncIterator[bytes]]
    """Iterate over the bytes of the body as they arrive, once."""
    base: str
    """The server's address, as the client wrote it: `http://host:port`."""
    operation: str = ""
    bucket: str = ""
    name: str = ""
    to_bucket: str = ""
    """Of a copy's target, as is `to_name`."""
    to_name: str = ""
    principal: str | None = None
    """Who makes the request; None: nobody, or it was not accepted."""
    _body: bytes | None = None

    def arg(self, name: str) -> str:
        """Return a parameter of the query; empty if there is none."""
        return self.query.get(name, [""])[0]

    async def read(self, limit: int = 4 << 20) -> bytes:
        """Return the whole body, as often as it is asked for."""
        if self._body is None:
            data = b""
            async for chunk in self.chunks():
                data += chunk
                if len(data) > limit:
                    raise RefusedError(413, "uploadTooLarge", "Request too large.")
            self._body = data
        return self._body


@dataclass
class FilePart:
    """A part of a file, sent without reading it into memory."""

    path: Path
    start: int
    length: int
    owner: object = None
    """Kept until the part is sent; the file may be removed with it."""

    def read(self, offset: int, length: int) -> bytes:
        """Return *length* bytes from *offset* on."""
        with self.path.open("rb") as file:
            file.seek(self.start + offset)
            return file.read(length)


@dataclass
class Answer:
    """A response."""

    status: int = 200
    body: bytes | FilePart = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return self.body.length if isinstance(self.body, FilePart) else len(self.body)


def json_answer(data: Any, *, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    """Return a response with *data* as JSON."""
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(status, body, {"Content-Type": "application/json; charset=UTF-8", **headers})


class RefusedError(Exception):
    """The service refuses a request; it also says how that looks (`Service.refuse`)."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        domain: str = "global",
        location: tuple[str, str] | None = None,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.domain = domain
        self.location = location
        """The kind and the name of the part of the request that is wrong."""
        self.headers = headers


class Service:
    """What a server serves."""

    headers: Mapping[str, str] = {}
    """Headers of all responses."""

    def route(self, call: Call) -> None:
        """Fill in the fields of *call* that faults and the log need."""

    async def perform(self, call: Call) -> Answer:
        """Return the response to *call*.

        Raises:
            RefusedError: The service does not do it.
        """
        raise NotImplementedError

    def refuse(self, call: Call, error: RefusedError) -> Answer:
        """Return the response for *error*."""
        return json_answer({"error": error.message}, status=error.status, headers=error.headers)

    def injected(self, status: int, code: str) -> RefusedError:
        """Return the service's error for an injected *status*."""
        return RefusedError(status, code or "UNKNOWN", "injected")
