"""Streaming responses of an API server: lines of a log, events of a watch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import urllib3
from urllib3.exceptions import HTTPError

from kinetic_k8s.cluster.translation import Identity, Refusal, Request, error_of
from kinetic_k8s.errors import ClusterUnreachableError
from kinetic_k8s.manifests import Manifest

_CHUNK: Final = 65536


@dataclass(frozen=True, kw_only=True)
class WatchEvent:
    """A change that a watch reports."""

    type: str
    """`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`; an event `ERROR` is raised as an exception."""
    object: Manifest


class Lines:
    """The lines of a streaming response, without line breaks."""

    def __init__(
        self, response: urllib3.BaseHTTPResponse, request: Request, where: Identity
    ) -> None:
        self._response = response
        self.request = request
        self.where = where
        self._closed = False

    def close(self) -> None:
        """End the stream at once, from any thread."""
        self._closed = True
        # The stream may have ended, or the connection may be closed already.
        with suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def __iter__(self) -> Iterator[str]:
        # A line may be megabytes long: its parts are joined once, at its end.
        parts: list[bytes] = []
        for chunk in self._chunks():
            first, *others = chunk.split(b"\n")
            parts.append(first)
            for other in others:
                yield b"".join(parts).decode(errors="replace")
                parts = [other]
        if not self._closed and (rest := b"".join(parts)):
            yield rest.decode(errors="replace")

    def _chunks(self) -> Iterator[bytes]:
        try:
            while not self._closed and (data := self._response.read1(_CHUNK)):
                yield data
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            if self._closed:  # The error is due to the shutdown of the socket.
                return
            if not isinstance(error, HTTPError | OSError):
                raise
            raise ClusterUnreachableError(
                f"Could not {self.request} in {self.where}: the stream broke: {error}."
            ) from error


class Events:
    """The events of a watch."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def close(self) -> None:
        """End the stream at once, from any thread."""
        self._lines.close()

    def __iter__(self) -> Iterator[WatchEvent]:
        for line in self._lines:
            try:
                event = json.loads(line)
            except ValueError:  # The server ended in the middle of a line.
                return
            if event["type"] == "ERROR":
                status = event["object"]
                refusal = Refusal.of(int(status.get("code") or 0), json.dumps(status).encode())
                raise error_of(refusal, self._lines.request, self._lines.where)
            yield WatchEvent(type=event["type"], object=event["object"])
