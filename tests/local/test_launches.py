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
from kinetic.testing import a_launch, await_outcome, eventually, job_ids_of, outcome_of
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


def test_a_job_runs_to_its_outcome_and_is_removed(backend: Backend, store: Store) -> None:
    launch = a_launch(store, "print('hello'); print('no end', end='')")
    assert backend.observe(launch.record).status is JobStatus.NOT_FOUND
    backend.start(launch)
    assert job_ids_of(backend) == [launch.record.job_id]
    assert await_outcome(backend, store, launch.record).status == "succeeded"
    lines = [line.text for line in backend.log_lines(launch.record, follow=True)]
    assert lines == ["hello", "no end"]
    assert backend.observe(launch.record).status in (JobStatus.RUNNING, JobStatus.SUCCEEDED)
    backend.remove(launch.record, timeout=30, poll_interval=0.1)
    assert backend.observe(launch.record).status is JobStatus.NOT_FOUND
    assert job_ids_of(backend) == []


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


def test_one_failed_host_stops_the_others_and_explains(backend: Backend, store: Store) -> None:
    code = "import time\nif host == 1: raise ValueError('mine')\nprint(host)\ntime.sleep(60)"
    launch = a_launch(store, code, hosts=3)
    backend.start(launch)
    outcome = await_outcome(backend, store, launch.record)
    assert (outcome.status, outcome.host, outcome.other_failed_hosts) == ("failed", 1, ())


def test_a_stopped_job_is_gone_and_failed(backend: Backend, store: Store) -> None:
    launch = a_launch(store, "import time; print('up', flush=True); time.sleep(60)")
    backend.start(launch)
    next(iter(backend.log_lines(launch.record, follow=True)))
    eventually(lambda: backend.observe(launch.record).status is JobStatus.RUNNING)
    backend.stop(launch.record, timeout=30, poll_interval=0.1)
    assert backend.observe(launch.record).status is JobStatus.FAILED
    outcome = outcome_of(store, launch.record.job_id)
    assert outcome is not None
    assert outcome.status == "cancelled"
    backend.stop(launch.record, timeout=1, poll_interval=0.1)


def test_the_tail_is_the_end_of_the_log(backend: Backend, store: Store) -> None:
    launch = a_launch(store, "for n in range(1000): print(n)")
    backend.start(launch)
    await_outcome(backend, store, launch.record)
    eventually(lambda: _ended(backend, launch.record))
    lines = [line.text for line in backend.log_lines(launch.record, tail=3)]
    assert lines == ["997", "998", "999"]
    assert len(list(backend.log_lines(launch.record))) == 1000
    assert list(backend.log_lines(launch.record, tail=0)) == []


def _ended(backend: Backend, record: JobRecord) -> Any:
    seen = backend.observe(record)
    return seen if seen.status.terminal else None
