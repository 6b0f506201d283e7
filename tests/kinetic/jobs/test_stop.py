from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kinetic.errors import (
    JobCancelledError,
    JobError,
    KineticError,
    SignatureError,
    StoreError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.collect import collect
from kinetic.jobs.records import find_outcome
from kinetic.jobs.services import Services
from kinetic.jobs.status import look
from kinetic.jobs.stop import cancel, clean_up
from kinetic.settings.keys import KeyFile, KeySigner
from kinetic_payload.layout import INLINE_LIMIT, JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.signing import signed
from kinetic_servers.fakes import FakeServices, a_record, report_value
from kinetic_servers.launches import job_ids_of

LARGE = bytes(2 * INLINE_LIMIT)
SHARED = ("contexts/abc.zip", "data/abc/tree.zip", "data-markers/abc", "groups/grp-1/group.json")


def stop(job: JobRecord, services: FakeServices):
    return cancel(job, services, timeout=60, poll_interval=0.01)


def clean(
    job: JobRecord, services: FakeServices, *, resource: bool = True, artifacts: bool = True
) -> None:
    clean_up(job, services, resource=resource, artifacts=artifacts, timeout=60, poll_interval=0.01)


def objects(job: JobRecord, services: FakeServices) -> list[str]:
    return [info.name for info in services.store.list(JobObjects(job.job_id).prefix)]


# Cancel


def test_cancel_writes_the_outcome_before_it_stops_the_job_and_is_repeatable(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.runs(job.job_id)

    first = stop(job, services)

    assert first.status == "cancelled"
    done = services.journal.of("write */outcome.json", "stop *")
    assert done[:2] == [f"write {job.job_id}/outcome.json", f"stop {job.job_id}"]
    assert look(job, services).status is JobStatus.FAILED
    with pytest.raises(JobCancelledError):
        collect(job, services).get()
    assert stop(job, services) == first


@pytest.mark.parametrize("moment", ["read */outcome.json", "observe *", "write */outcome.json"])
def test_a_job_that_finishes_before_its_cancellation_keeps_its_value(
    services: FakeServices, job: JobRecord, moment: str
) -> None:
    services.backend.runs(job.job_id)
    services.journal.before(moment, lambda: report_value(services.store, job.job_id, 42))

    assert stop(job, services).status == "succeeded"

    assert collect(job, services).get() == 42
    # What lingers of it is stopped all the same.
    assert services.backend.observe(job).status.terminal


@pytest.mark.parametrize(("backend", "place"), [("local", "KINETIC_HOME"), ("gke", "a Secret")])
def test_a_refusal_without_the_key_names_where_the_key_is(
    tmp_path: Path, services: FakeServices, backend: str, place: str
) -> None:
    class Elsewhere(KeyFile):
        hint = "It lies in a Secret."

    KeyFile(tmp_path).ensure()
    record = a_record(backend=backend)
    data = signed(encode(record), b"o" * 32, name=JobObjects(record.job_id).handle)
    ours = Services(services.store, services.backend, key_signer=KeySigner(Elsewhere(tmp_path)))

    with pytest.raises(SignatureError) as caught:
        cancel(record, ours, timeout=1, poll_interval=0.01, stored=data)

    assert place in (caught.value.hint or "")
    assert ("Secret" in (caught.value.hint or "")) is (backend == "gke")


@pytest.mark.parametrize(
    ("call", "error", "cancelled"),
    [
        ("stop *", JobError("It still runs."), True),
        ("write */outcome.json", StoreError("It still runs."), False),
    ],
)
def test_a_cancellation_that_fails_is_an_error_and_stops_nothing_unless_it_is_stored(
    services: FakeServices, job: JobRecord, call: str, error: Exception, cancelled: bool
) -> None:
    services.backend.runs(job.job_id)
    services.journal.refuse(call, error)

    with pytest.raises(type(error), match="still runs"):
        stop(job, services)

    assert (find_outcome(services.store, job.job_id) is not None) is cancelled
    assert services.backend.observe(job).status is JobStatus.RUNNING


def no_space(*_: object) -> None:
    try:
        raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as error:
        raise StoreError("Could not write: no space is left on the disk.") from error


@pytest.mark.parametrize("stays_full", [False, True])
def test_on_a_full_disk_a_job_is_stopped_before_its_outcome_is_written(
    services: FakeServices, job: JobRecord, stays_full: bool
) -> None:
    services.backend.runs(job.job_id)
    services.journal.before("write */outcome.json", *[no_space] * (4 if stays_full else 1))
    if stays_full:
        with pytest.raises(StoreError, match="was stopped, and its outcome cannot be") as caught:
            stop(job, services)
        assert "kinetic jobs cleanup" in str(caught.value)
    else:
        assert stop(job, services).status == "cancelled"

    assert services.journal.of("stop *")
    assert (find_outcome(services.store, job.job_id) is None) is stays_full
    clean(job, services)
    assert objects(job, services) == []


# Clean-up


@pytest.mark.parametrize(
    ("resource", "artifacts", "afterwards"),
    [
        (True, True, JobStatus.NOT_FOUND),
        (True, False, JobStatus.SUCCEEDED),
        (False, True, JobStatus.SUCCEEDED),  # By its resource.
        (False, False, JobStatus.SUCCEEDED),
    ],
)
def test_clean_up_removes_the_parts_that_were_named(
    services: FakeServices,
    job: JobRecord,
    resource: bool,
    artifacts: bool,
    afterwards: JobStatus,
) -> None:
    services.backend.returns(job.job_id, 42)

    clean(job, services, resource=resource, artifacts=artifacts)

    assert (job_ids_of(services.backend) == []) is resource
    assert (objects(job, services) == []) is artifacts
    assert look(job, services).status is afterwards
    clean(job, services, resource=resource, artifacts=artifacts)


def test_clean_up_removes_only_the_jobs_own_objects_the_record_first_and_the_outcome_last(
    services: FakeServices, job: JobRecord
) -> None:
    names = JobObjects(job.job_id)
    theirs = [f"{names.prefix}notes.txt", f"{names.attempts}1/notes.txt"]
    kept = [names.log_chunk(1, 0, 0), f"{names.outputs}model.bin", f"{job.job_id}0/handle.json"]
    kept += theirs
    for name in (*kept, *SHARED):
        services.store.write(name, b"x")
    services.backend.returns(job.job_id, LARGE)

    clean(job, services)

    assert services.left() == sorted((*kept, *SHARED))
    assert services.store.stat(names.summary) is not None
    removed, first, *between, last = services.journal.of("remove *", "delete *")
    assert removed == f"remove {job.job_id}"
    assert first == f"delete {job.job_id}/handle.json"
    assert last == f"delete {job.job_id}/outcome.json"
    assert len(between) == 3


def test_the_record_is_removed_first_also_by_parallel_requests(
    tmp_path: Path,
) -> None:
    bucket = FakeServices.make(home=tmp_path)
    job = bucket.job()
    bucket.backend.returns(job.job_id, LARGE)
    gone, first = threading.Event(), []
    bucket.journal.after("delete */host-0.json", gone.set)
    # Beside it, the rest would go while the record takes its time.
    bucket.journal.before("delete */handle.json", lambda: first.append(not gone.wait(0.2)))

    clean(job, bucket)

    assert first == [True]
    assert objects(job, bucket) == []


def test_a_job_that_starts_during_its_clean_up_is_cleaned_up(
    services: FakeServices, job: JobRecord
) -> None:
    launch = services.backend.launch_of(job.job_id)
    services.backend.loses(job.job_id)
    services.journal.after("remove *", lambda: services.backend.start(launch))

    with services.backend.announced(job):
        clean(job, services)

    assert job_ids_of(services.backend) == []
    assert objects(job, services) == []


@pytest.mark.parametrize("state", ["pending", "running", "reported"])
def test_the_objects_of_a_job_whose_resource_has_not_ended_stay(
    services: FakeServices, job: JobRecord, state: str
) -> None:
    if state != "pending":
        services.backend.runs(job.job_id)
    if state == "reported":
        report_value(services.store, job.job_id, 42)
    before = services.store.names()

    with pytest.raises(JobError, match="needs its objects") as caught:
        clean_up(job, services, resource=False, artifacts=True, timeout=0.05, poll_interval=0.01)

    assert caught.value.hint
    assert caught.value.job_id == job.job_id
    assert services.store.names() == before


def test_the_objects_of_a_reported_job_go_as_soon_as_its_resource_has_ended(
    services: FakeServices, job: JobRecord
) -> None:
    services.backend.runs(job.job_id)
    report_value(services.store, job.job_id, 42)
    returns = partial(services.backend.returns, job.job_id, 42)
    services.journal.before("observe *", lambda: None, returns)

    clean(job, services, resource=False)

    assert len(services.journal.of("observe *")) == 2
    assert look(job, services).status is JobStatus.SUCCEEDED
    assert objects(job, services) == []


INTERRUPTIONS = (
    "remove *",
    "stop *",
    "delete */handle.json",
    "delete */payload.pkl",
    "delete */host-0.json",
    "delete */host-0.pkl",
    "delete */outcome.json",
)


@pytest.mark.parametrize("pattern", INTERRUPTIONS)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreError("The network is away.")])
def test_an_interrupted_clean_up_never_turns_a_success_into_a_failure(
    services: FakeServices, job: JobRecord, pattern: str, error: BaseException
) -> None:
    services.backend.returns(job.job_id, LARGE)
    services.journal.refuse(pattern, error)

    with pytest.raises(type(error)):
        clean(job, services)

    assert look(job, services).status is JobStatus.SUCCEEDED
    clean(job, services)
    assert look(job, services).status is JobStatus.NOT_FOUND
    assert objects(job, services) == []


@pytest.mark.parametrize("damage", [b"{", b'{"version": 99}', b""])
@pytest.mark.parametrize("state", ["pending", "running", "ended", "lost"])
def test_a_job_with_a_damaged_outcome_can_be_removed(
    services: FakeServices, job: JobRecord, state: str, damage: bytes
) -> None:
    ends: dict[str, Callable[[], None]] = {
        "pending": lambda: None,
        "running": lambda: services.backend.runs(job.job_id),
        "ended": lambda: services.backend.returns(job.job_id, 42),
        "lost": lambda: services.backend.loses(job.job_id),
    }
    ends[state]()
    services.store.write(JobObjects(job.job_id).outcome, damage)

    clean(job, services)

    assert objects(job, services) == []
    assert job_ids_of(services.backend) == []


@pytest.mark.parametrize("act", [cancel, clean_up])
@pytest.mark.parametrize("call", ["observe", "check_stop", "stop"])
def test_a_refusal_of_the_backend_names_the_job_and_removes_nothing(
    services: FakeServices, job: JobRecord, act: Any, call: str
) -> None:
    services.backend.runs(job.job_id)
    services.journal.refuse(f"{call} *", KineticError("Not permitted (403)."))
    options = {} if act is cancel else {"resource": True, "artifacts": True}

    with pytest.raises(KineticError, match=rf"{job.job_id}.*Not permitted"):
        act(job, services, timeout=1, poll_interval=0.01, **options)

    # What is to stop is cancelled before, whatever follows.
    cancelled = find_outcome(services.store, job.job_id) is not None
    assert cancelled is (call == "stop")
    assert services.journal.of("delete *") == []
