"""Requests and responses of a registry for tests, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from kinetic_images.testing.registry.storage import StorageError


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: BinaryIO
    base: str
    """Scheme and host of the server, as the caller knows it."""

    def one(self, name: str) -> str:
        """Return the value of a parameter of the query; empty: there is none."""
        return self.query.get(name, ("",))[0]

    @property
    def accept(self) -> set[str]:
        """The media types that the caller accepts."""
        listed = self.headers.get("accept", "").split(",")
        return {each.partition(";")[0].strip().lower() for each in listed}


@dataclass
class Answer:
    """A response. A file is sent in pieces; of it, *length* bytes from *start* on."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | Path = b""
    start: int = 0
    length: int | None = None

    @property
    def size(self) -> int:
        """The size of the body in bytes."""
        if isinstance(self.body, bytes):
            return len(self.body)
        return self.body.stat().st_size if self.length is None else self.length


def json_answer(data: object, *, status: int = 200, headers: Mapping[str, str] = {}) -> Answer:
    """Return a response with *data* as JSON."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Answer(status, {**kind, **headers}, json.dumps(data).encode())


def refusal(error: StorageError, headers: Mapping[str, str] = {}) -> Answer:
    """Return the response for *error*, in the form of the specification."""
    listed = [{"code": error.code, "message": error.message, "detail": None}]
    return json_answer({"errors": listed}, status=error.status, headers=headers)
