"""The local backend's processes, over a stand-in for the runner: what becomes of a launch, in both stores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kinetic.backends.backend import Backend
from kinetic.backends.local.backend import LocalBackend
from kinetic.job_status import JobStatus
from kinetic.testing import a_launch, await_outcome, eventually
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.job import JobRecord
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Location, Store
from kinetic_payload.testing.gcs import GcsServer


@pytest.fixture(params=["folder", "bucket"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    if request.param == "folder":
        yield FolderStore(tmp_path / "home" / "store")
        return
    with GcsServer() as server:
        server.create_bucket("jobs")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield open_store(Location("gs", "jobs/prefix"))


@pytest.fixture
def backend(store: Store, tmp_path: Path) -> Backend:
    # Nobody else keeps jobs here, so one that is not here never started.
    return LocalBackend(tmp_path / "home", store, starting=-5.0)


def test_a_failure_is_reported_with_its_host_and_digest(backend: Backend, store: Store) -> None:
    launch = a_launch(store, "raise ValueError('no')")
    backend.start(launch)
    outcome = await_outcome(backend, store, launch.record)
    assert (outcome.status, outcome.attempt, outcome.host) == ("failed", 1, 0)
    report = store.read(JobObjects(outcome.job_id).host_outcome(1, 0))
    assert outcome.digest == hashlib.sha256(report).hexdigest()
    eventually(lambda: backend.observe(launch.record).status is JobStatus.FAILED)


def test_retries_are_further_attempts_of_the_same_job(backend: Backend, store: Store) -> None:
    launch = a_launch(store, "print(attempt)\nif attempt < 3: raise ValueError", retries=5)
    backend.start(launch)
    outcome = await_outcome(backend, store, launch.record)
    assert (outcome.status, outcome.attempt) == ("succeeded", 3)
    seen = eventually(lambda: _ended(backend, launch.record))
    assert [one.state for one in seen.attempts] == ["failed", "failed", "succeeded"]


def _ended(backend: Backend, record: JobRecord) -> Any:
    seen = backend.observe(record)
    return seen if seen.status.terminal else None
