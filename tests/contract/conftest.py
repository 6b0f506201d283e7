"""Homes and buckets for the clients of the contracts, and asserts that show what they compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinetic_servers.gcs import GcsServer

pytest.register_assert_rewrite("kinetic.testing.contract", "kinetic_servers.protocol")


@pytest.fixture
def home(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warm: Callable[[Path], Path],
    end_processes_below: Callable[[Path], object],
) -> Iterator[Path]:
    """Return the `KINETIC_HOME` of this process, and of those that it starts."""
    made = warm(tmp_path / "home")
    monkeypatch.setenv("KINETIC_HOME", str(made))
    yield made
    end_processes_below(tmp_path)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a folder of a strict server's bucket, which this process reaches."""
    with GcsServer() as server:
        server.create_bucket("jobs")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield "gs://jobs/prefix"
