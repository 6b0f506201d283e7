"""Buckets to test against: our strict server, and a second one that nobody here wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kinetic_payload.testing.gcs import GcsServer


@pytest.fixture
def gcs(request: pytest.FixtureRequest) -> Iterator[GcsServer]:
    """Return a running strict server, empty but for the bucket `bucket`."""
    with GcsServer() as server:
        server.create_bucket("bucket")
        yield server


@pytest.fixture
def gcs_client(gcs: GcsServer) -> Any:
    """Return a real client of it."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": gcs.endpoint}
    return storage.Client("test-project", AnonymousCredentials(), client_options=options)
