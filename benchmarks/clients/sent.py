"""The HTTP requests that a process sends: counted, and sent again by a bare client, which is their floor."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


@dataclass(frozen=True)
class Request:
    """A request as it was sent."""

    method: str
    origin: str
    path: str
    headers: dict[str, Any]
    body: bytes | None
    when: float

    @property
    def to_cluster(self) -> bool:
        """Whether it went to the API server: it is the only server here with TLS."""
        return self.origin.startswith("https:")


def record() -> list[Request]:
    """Record the requests of this process from now on; the library of the buckets uses urllib3, too."""
    sent: list[Request] = []
    send = HTTPConnection.request

    def recorded(
        connection: HTTPConnection,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> None:
        if hasattr(body, "read"):
            body = body.read()
        scheme = "https" if isinstance(connection, HTTPSConnection) else "http"
        origin = f"{scheme}://{connection.host}:{connection.port}"
        data = body.encode() if isinstance(body, str) else body
        sent.append(Request(method, origin, url, dict(headers or {}), data, time.time()))
        send(connection, method, url, body, headers, **options)

    HTTPConnection.request = recorded  # type: ignore[assignment, method-assign]
    return sent


class Bare:
    """A bare client, with connections that it keeps."""

    def __init__(self, ca: str) -> None:
        self._http = urllib3.PoolManager(ca_certs=ca, retries=False)

    def send(self, requests: list[Request]) -> float:
        """Send *requests* again, one after another; return how long that took."""
        began = time.perf_counter()
        owner = b""
        for each in requests:
            body = each.body
            if body and owner:
                # What belongs to the Job belongs to the new one; otherwise it would be collected.
                body = re.sub(rb'("uid": ?)"[^"]+"', rb'\1"' + owner + rb'"', body)
            url = each.origin + each.path
            answer = self._http.request(each.method, url, body=body, headers=each.headers)
            if each.method != "GET" and answer.status >= 300:
                raise SystemExit(f"{each.method} {each.path}: {answer.status} {answer.data!r}")
            if each.to_cluster and each.path.partition("?")[0].endswith("/jobs") and body:
                owner = json.loads(answer.data)["metadata"]["uid"].encode()
        return time.perf_counter() - began

    def get(self, url: str, headers: dict[str, Any]) -> Any:
        """Return the decoded JSON of *url*."""
        return json.loads(self._http.request("GET", url, headers=headers).data)

    def end_of_container(self, url: str, headers: dict[str, Any]) -> float:
        """Watch pods until a container has ended; return when the event arrived."""
        answer = self._http.request("GET", url, headers=headers, preload_content=False)
        rest = b""
        while data := answer.read1():
            *lines, rest = (rest + data).split(b"\n")
            for pod in (json.loads(line)["object"] for line in lines):
                statuses = pod.get("status", {}).get("containerStatuses", [])
                if any("terminated" in each["state"] for each in statuses):
                    return time.time()
        raise SystemExit(f"The watch ended: {url}")
