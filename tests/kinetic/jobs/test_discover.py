from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kinetic import attach, list_jobs
from kinetic.errors import (
    InvalidRequestError,
    JobNotFoundError,
    KineticError,
    StoreError,
    StorePermissionError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import jobs_in, statuses_of
from kinetic.jobs.handle import JobHandle, handle_of
from kinetic.jobs.records import write_outcome
from kinetic_payload.errors import LoginRequiredError
from kinetic_payload.layout import JobObjects
from kinetic_payload.records.encode import encode
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Store
from kinetic_servers.fakes import FakeServices, FakeStore, a_record, connected, report_value

JOB = a_record().job_id
ODD = (
    "",
    ".",
    "..",
    "../secrets",
    "x" * 300,
    f"{'x' * 300}-{JOB}",
    JOB.upper(),
    "\x1b]0;x\x07",
    "\u0663",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PROJECT", "CLUSTER", "BACKEND", "STORE", "PROFILE", "PROFILES_FILE"):
        monkeypatch.delenv(f"KINETIC_{name}", raising=False)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))
    # Nobody here has credentials, whatever the machine has.
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    return tmp_path / "home"


def job_id(number: int) -> str:
    return f"cpu-f-20260101-000000-{number:07x}"


def keep(store: Store, **fields: Any) -> str:
    """Store a record, and return the job's id."""
    usual: dict[str, Any] = {"backend": "local", "bucket_name": str(store.location)}
    record = a_record(**{**usual, **fields})
    store.write(JobObjects(record.job_id).handle, encode(record))
    return record.job_id


# Attach


def test_a_job_is_looked_for_in_the_local_store_first(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINETIC_STORE", str(tmp_path / "shared"))
    keep(FolderStore(home / "store"), func_name="local")
    keep(FolderStore(tmp_path / "shared"), func_name="shared")
    keep(FolderStore(tmp_path / "shared"), func_name="shared", job_id=job_id(1))

    assert (attach(JOB).job_id, attach(JOB).func_name) == (JOB, "local")
    assert attach(job_id(1)).func_name == "shared"


def test_jobs_are_found_after_their_store_was_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_value(FolderStore(home / "store"), keep(FolderStore(home / "store")), 42)
    home.rename(tmp_path / "moved")
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "moved"))

    assert attach(JOB).result(timeout=0) == 42

    assert not home.exists()


def test_an_unknown_job_is_an_error_that_names_every_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobNotFoundError) as caught:
        attach(JOB)
    assert f"the local store ({home}/store): not there yet" in str(caught.value)
    assert caught.value.job_id == JOB
    assert not home.exists()

    (home / "store").mkdir(parents=True)
    with pytest.raises(JobNotFoundError) as caught:
        attach(JOB, project="p", cluster="c")
    assert f"the local store ({home}/store): no such job" in str(caught.value)
    assert "the bucket of the cluster (gs://p-kn-c-jobs): " in str(caught.value)

    monkeypatch.setenv("KINETIC_STORE", "gs://team")
    with pytest.raises(JobNotFoundError) as caught:
        attach(JOB, project="p")
    _, *places = caught.value.message.splitlines()
    assert [place.partition(": ")[0].strip() for place in places] == [
        f"the local store ({home}/store)",
        "KINETIC_STORE (gs://team)",
        "the bucket of the cluster (gs://p-kn-kinetic-cluster-jobs)",
    ]
    assert all("credentials" in place for place in places[1:])
    assert "application-default login" in str(caught.value.hint)


@pytest.mark.parametrize("text", [*ODD, "a/b", "/etc", f"{JOB}/.."])
def test_a_text_that_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a job id"):
        attach(text)


# List


def test_jobs_are_listed_newest_first_without_objects_of_other_kinds(home: Path) -> None:
    assert list_jobs() == []
    assert not home.exists()

    store = FolderStore(home / "store")
    for day in (2, 10, 1):
        keep(store, job_id=job_id(day), created_at=f"2026-01-{day:02}T00:00:00+00:00")
    keep(store, job_id="outputs")  # A user's own file of that name.
    for name in (
        f"logs/{JOB}/1/host-0/00000000",
        "contexts/abc.zip",
        "outputs/other/handle.json",
        "half-cleaned-up/outcome.json",
    ):
        store.write(name, b"{}")

    assert [job.job_id for job in list_jobs()] == [job_id(10), job_id(2), job_id(1)]


def test_an_unreadable_record_is_left_out_with_a_warning(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FolderStore(home / "store")
    keep(store)
    store.write(JobObjects(job_id(1)).handle, b"{")
    store.write(JobObjects(job_id(2)).handle, b'{"version": 99}')
    # Believed, a clean-up of this one would be one of another job, or of more than that.
    store.write(JobObjects(job_id(3)).handle, store.read(JobObjects(JOB).handle))
    keep(store, job_id=job_id(4), hosts=10**9)
    keep(store, job_id=job_id(5), func_name="x" * 300_000)

    with caplog.at_level(logging.WARNING, "kinetic"):
        jobs = list_jobs()

    assert [job.job_id for job in jobs] == [JOB]
    assert caplog.text.count("is left out") == 5
    for words in (f"job {job_id(1)}", "format 99", "hosts is not between 1 and", "262,144 bytes"):
        assert words in caplog.text


def test_folders_with_odd_names_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore(remote=True)
    keep(store)
    for text in ODD:
        with suppress(KineticError):  # What a store of ours would not write, a bucket may hold.
            store.write(f"{text}/handle.json", store.read(JobObjects(JOB).handle))
    store.journal.entries.clear()

    assert [job.job_id for job in jobs_in(store)] == [JOB]
    assert len(store.journal.of("read *")) == 1
    assert caplog.text == ""


@pytest.mark.parametrize("remote", [False, True])
def test_a_record_that_may_not_be_read_is_an_error_and_not_an_empty_list(remote: bool) -> None:
    store = FakeStore(remote=remote)
    for number in range(20):
        keep(store, job_id=job_id(number))
    store.journal.refuse(f"read {job_id(7)}/handle.json", StorePermissionError("You may not."))

    with pytest.raises(StorePermissionError):
        jobs_in(store)


def test_a_job_that_is_cleaned_up_while_they_are_listed_is_left_out() -> None:
    store = FakeStore()
    for number in (1, 2):
        keep(store, job_id=job_id(number))
    gone = JobObjects(job_id(1)).handle
    store.journal.before(f"read {gone}", lambda: store.delete(gone))

    assert [job.job_id for job in jobs_in(store)] == [job_id(2)]


def test_jobs_of_all_namespaces_are_listed_or_of_the_one_that_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(home / "store")
    keep(store, job_id=job_id(1), namespace="red")
    keep(store, job_id=job_id(2), namespace="red", backend="gke")
    keep(store, job_id=job_id(3), namespace="blue", backend="pathways")

    def listed(**where: str) -> list[str]:
        return sorted(job.job_id for job in list_jobs(**where))

    assert listed() == [job_id(1), job_id(2), job_id(3)]
    assert listed(namespace="red") == [job_id(1), job_id(2)]
    assert listed(namespace="blue") == [job_id(1), job_id(3)]  # This machine has no namespaces.
    monkeypatch.setenv("KINETIC_NAMESPACE", "green")
    assert listed() == [job_id(1)]


def test_a_folder_with_other_files_is_not_used_as_a_store(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(FolderStore(home / "store"))
    theirs = tmp_path / "theirs"
    (theirs / "photos").mkdir(parents=True)
    monkeypatch.setenv("KINETIC_STORE", str(theirs))

    with pytest.raises(StoreError, match="photos"):
        list_jobs()
    with pytest.raises(JobNotFoundError, match="photos"):
        attach(job_id(1))
    assert attach(JOB).job_id == JOB
    assert list(theirs.rglob("*")) == [theirs / "photos"]


def test_an_unreachable_cluster_is_an_error_and_not_an_empty_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KINETIC_BACKEND", "gke")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))

    with pytest.raises(LoginRequiredError, match="no usable Google credentials"):
        list_jobs(project="p")


def test_a_google_project_without_kinetic_does_not_affect_the_list(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keep(FolderStore(home / "store"))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "others")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(home / "none.json"))

    with caplog.at_level(logging.WARNING):
        assert [job.job_id for job in list_jobs()] == [JOB]
    assert caplog.messages == []


# In a bucket


def test_records_in_a_bucket_are_read_in_parallel_and_once() -> None:
    store = FakeStore(remote=True)
    for number in range(20):
        keep(store, job_id=job_id(number), created_at=f"2026-01-01T00:00:{number:02}+00:00")
    together = threading.Barrier(4)
    store.journal.before("read */handle.json", *[lambda: together.wait(60)] * 4)

    jobs = jobs_in(store)

    assert [job.job_id for job in jobs] == [job_id(n) for n in reversed(range(20))]
    assert len(store.journal.of("read *")) == 20


def listed(services: FakeServices) -> list[JobHandle]:
    """Return the jobs that a list of the store shows, by their ids."""
    jobs = jobs_in(services.store, verify=services.verify)
    for job in jobs:
        job._session.services = services
    return sorted(jobs, key=lambda job: job.job_id)


def test_statuses_of_running_jobs_take_one_list_of_their_backend() -> None:
    services = FakeServices.make()
    ids = [services.job(job_id=job_id(number)).job_id for number in range(3)]
    jobs = listed(services)
    services.backend.runs(ids[1])
    services.backend.returns(ids[2], 3)
    services.journal.entries.clear()

    assert statuses_of(jobs) == [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED]
    assert services.journal.of("list", "observe *") == ["list"]


def test_a_cancelled_job_that_still_ends_is_listed_as_failed() -> None:
    services = FakeServices.make()
    cancelled, _ = [services.job(job_id=job_id(number)).job_id for number in (1, 2)]
    before = listed(services)
    statuses_of(before)
    write_outcome(services, Outcome(job_id=cancelled, status="cancelled", written_by="client"))

    for jobs in (listed(services), before):
        assert statuses_of(jobs) == [JobStatus.FAILED, JobStatus.PENDING]
        ends = [job._session.final and job._session.final.status for job in jobs]
        assert ends == ["cancelled", None]
    assert services.backend.observe(before[0]._record).status is JobStatus.PENDING


def test_an_unknown_status_hides_no_other_status() -> None:
    services = FakeServices.make()
    good = connected(handle_of(services.job(job_id="good")), services)
    bad = connected(handle_of(services.job(job_id="bad")), services)
    gone = connected(handle_of(a_record(job_id="gone", bucket_name="gs://bucket")), services)
    services.journal.refuse("list", StoreError("Away."))
    services.journal.refuse("read bad/outcome.json", StoreError("Away."))

    found = statuses_of([good, bad, gone])

    assert found[0] is JobStatus.PENDING
    assert isinstance(found[1], StoreError)
    assert found[2] is JobStatus.NOT_FOUND
