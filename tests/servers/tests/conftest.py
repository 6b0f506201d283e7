"""The strict bucket server, with Google's own client of it, and requests as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from kinetic_servers.gcs import GcsServer


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def ask_at(
    endpoint: str, method: str, path: str, body: bytes | None = b"", **headers: str
) -> Answered:
    """Send one request over a connection of its own; `_` in names of headers stands for `-`."""
    connection = HTTPConnection(endpoint.removeprefix("http://"), timeout=100)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path.removeprefix(endpoint), body, named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, found, answer.read())
    finally:
        connection.close()


@pytest.fixture
def ask_of() -> Callable[..., Answered]:
    """Return what sends one request to an endpoint."""
    return ask_at


@pytest.fixture
def server() -> Iterator[GcsServer]:
    """Run the strict bucket server, with an empty bucket."""
    with GcsServer() as running:
        running.create_bucket("bucket")
        yield running


@pytest.fixture
def ask(server: Any) -> Callable[..., Answered]:
    """Return what sends one request to the server."""
    return lambda *request, **headers: ask_at(server.endpoint, *request, **headers)


@pytest.fixture
def client(server: GcsServer) -> storage.Client:
    """Return Google's own client of the strict bucket server."""
    options = {"api_endpoint": server.endpoint}
    return storage.Client("test-project", AnonymousCredentials(), client_options=options)


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    """Return the empty bucket, as Google's own client has it."""
    return client.bucket("bucket")
