"""Whole jobs over a bucket, submitted in one home and found in another, and the requests that they cost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

import kinetic
from kinetic.errors import (
    JobCancelledError,
    SignatureError,
)
from kinetic.job_status import JobStatus
from kinetic.jobs.discover import complete_id, find_jobs, find_report, statuses_of
from kinetic.jobs.records import write_outcome
from kinetic.jobs.services import Services, key_signer_of, open_at
from kinetic.names import Selection
from kinetic.settings.keys import KeyFile
from kinetic.settings.settings import Settings
from kinetic.testing import eventually
from kinetic_payload.records.outcome import Outcome
from kinetic_payload.stores.store import Store, parse_location

from .conftest import RecordingBackend, ended, submit_to

JOBS = """
    import kinetic, os, pathlib, time

    @kinetic.run(accelerator="cpu")
    def double(x):
        print("doubling", len(str(x)))
        return x * 2

    @kinetic.run(accelerator="cpu")
    def fail(x):
        raise KeyError(x)

    @kinetic.run(accelerator="cpu")
    def sleep():
        print("asleep", flush=True)
        time.sleep(60)

    @kinetic.run(accelerator="cpu")
    def read(data):
        return sorted(p.name for p in pathlib.Path(data).iterdir())
"""


@pytest.fixture
def jobs(desk) -> Any:
    return desk.module("jobs", JOBS)


def the_store(desk) -> Store:
    return open_at(parse_location(desk.store))


def test_a_job_leaves_only_shared_objects_in_the_bucket(desk, jobs) -> None:
    handle = jobs.double.run_async(21)

    assert handle.bucket_name == desk.store
    assert handle.result() == 42
    assert handle.result() == 42
    assert desk.of_jobs() == []
    left = Counter(name.partition("/")[0] for name in desk.names())
    assert sorted(left) == ["contexts", "logs"]  # The log of a job that takes long has more chunks.
    assert left["contexts"] == 1
    assert not (desk.folder / "here" / "store").exists()


def test_a_job_of_another_home_is_trusted_with_its_key_or_the_trust_setting(desk, jobs) -> None:
    submitted = ended(jobs.double.run_async([1] * 40_000))
    there = desk.sit("there")

    found = kinetic.attach(submitted.job_id)

    assert found == submitted
    assert "doubling" in found.logs()
    listed = kinetic.list_jobs()
    assert [job.job_id for job in listed] == [submitted.job_id]
    assert isinstance(statuses_of(listed)[0], SignatureError)
    for ask in (found.status, found.outcome, found.cancel, found.result):
        with pytest.raises(SignatureError) as caught:
            ask()
        assert str(KeyFile(there).path) in str(caught.value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KINETIC_TRUST_BUCKET", "1")
        assert found.result(cleanup=False) == [1] * 80_000
    desk.share_key("there")
    assert found.status() is JobStatus.SUCCEEDED
    assert found.outcome().hosts[0].succeeded
    assert found.result(cleanup=False) == [1] * 80_000
    assert kinetic.attach(submitted.job_id).result() == [1] * 80_000
    assert desk.of_jobs() == []


def test_a_job_cancelled_from_another_home_is_cancelled_everywhere(desk, jobs) -> None:
    handle = jobs.sleep.run_async()
    desk.share_key("there")
    far = kinetic.attach(handle.job_id)
    eventually(lambda: far.status() is JobStatus.RUNNING)

    # What `cancel` does before it waits for the supervisor, which looks every ten seconds.
    write_outcome(far._services, Outcome(job_id=far.job_id, status="cancelled"))

    for each in (handle, far):
        with pytest.raises(JobCancelledError):
            each.result(timeout=60)


def test_a_list_costs_its_pages_and_requests_for_unfinished_and_old_jobs(desk, jobs) -> None:
    job_id = ended(jobs.double.run_async(21)).job_id
    store = the_store(desk)
    key_signer = key_signer_of(
        store.location, KeyFile(Path(Settings.from_environment().home.value))
    )
    assert key_signer is not None
    stem = job_id.rpartition("-")[0]
    ids = [f"{stem}-{number:07x}" for number in range(26)]
    early, unfinished = ids[0], ids[1]

    def copy(one: str) -> None:
        for name in ("handle.json", "outcome.json"):
            if (one, name) == (unfinished, "outcome.json"):
                continue
            record = json.loads(store.read(f"{job_id}/{name}")) | {"job_id": one}
            data = key_signer.sign(json.dumps(record).encode(), f"{one}/{name}")
            if one != early:
                store.write(f"{one}/{name}", data)
                continue
            with store.writer(f"{one}/{name}") as stream:  # Without metadata, as it was once.
                stream.write(data)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(copy, ids))
    kinetic.list_jobs()
    desk.server.limit_pages(50)
    desk.server.requests.clear()

    found = kinetic.list_jobs()
    # Two pages, one more for each of the other parts of the bucket that may hold jobs, and the two objects of `early`.
    asked = Counter(request.operation for request in desk.server.requests)
    assert asked == {"objects.list": 6, "objects.get.media": 2}
    desk.server.requests.clear()
    statuses = dict(zip([job.job_id for job in found], statuses_of(found), strict=True))

    assert set(statuses) == {job_id, *ids}
    assert statuses.pop(unfinished) is not JobStatus.SUCCEEDED
    assert set(statuses.values()) == {JobStatus.SUCCEEDED}
    named = [request.name.split("/")[1] for request in desk.server.requests if request.name]
    assert set(named) == {unfinished}


def submitted(desk, function: Any, *args: Any) -> list[Any]:
    """Submit a call, and return the requests that it took."""
    location, key = parse_location(desk.store), KeyFile(desk.folder / "here")
    key_signer = key_signer_of(location, key)
    services = Services(open_at(location), cast("Any", RecordingBackend()), key_signer=key_signer)
    desk.server.requests.clear()
    submit_to(services, desk.project, function, *args)
    return list(desk.server.requests)


def test_an_unchanged_project_sends_only_its_call_and_its_record(desk) -> None:
    work = desk.module("work", "def work(x): ...").work
    desk.write("large.bin", "x" * 100_000)
    folder = desk.folder / "set"
    folder.mkdir()
    (folder / "one.txt").write_text("1" * 100_000)
    data = kinetic.Data(str(folder))
    submitted(desk, work, data)

    for argument, most in ((1, 3), (data, 5)):
        asked = submitted(desk, work, argument)

        assert len(asked) <= most, [(one.operation, one.name) for one in asked]
        written = [Path(one.name).name for one in asked if one.method == "POST"]
        assert sorted(written) == ["handle.json", "payload.pkl"]
        assert sum(one.bytes_in for one in asked) < 10_000


def test_a_submit_sends_its_call_while_it_looks_for_the_project(desk) -> None:
    work = desk.module("work", "def work(x): ...").work
    submitted(desk, work, 1)
    # Held until the call comes; then it takes half a second longer, which the record waits for.
    held = desk.server.faults.add(name="*.zip", held=True, delay=0.5)

    def let_go() -> None:
        try:
            eventually(lambda: desk.server.requests.count(name="*.pkl"))
        finally:
            held.release()

    with ThreadPoolExecutor(1) as pool:
        letting = pool.submit(let_go)
        asked = {Path(one.name).suffix: one for one in submitted(desk, work, 1)}
        letting.result()

    context, payload, record = asked[".zip"], asked[".pkl"], asked[".json"]
    assert payload.time < context.time + context.seconds <= record.time


SUBMITTER = """
    import kinetic

    @kinetic.run(accelerator="cpu")
    def work():
        return 42

    if __name__ == "__main__":
        work.run_async()
"""


def test_a_job_whose_submitter_was_killed_after_the_record_is_failed_at_once(
    desk: Any,
) -> None:
    faults = desk.server.faults
    faults.add(method="POST", name="*/handle.json", reset="after", times=1)
    # The next try looks whether it was the first one that wrote the record.
    looking = faults.add(operation="objects.get*", name="*/handle.json", times=1, held=True)
    script = desk.write("main.py", SUBMITTER)
    with subprocess.Popen([sys.executable, str(script)]) as submitter:
        eventually(lambda: looking.hits)
        submitter.kill()
    looking.release()
    [job_id] = {name.partition("/")[0] for name in desk.of_jobs()}

    handle = kinetic.attach(job_id)
    with pytest.raises(kinetic.JobFailedError, match="killed before it started the job"):
        handle.result()

    assert kinetic.attach(job_id).status() is JobStatus.FAILED
    handle.cleanup()
    assert desk.of_jobs() == []
    assert list((desk.folder / "here" / "jobs").iterdir()) == []


def test_a_cleaned_up_job_is_listed_and_reported_without_its_cluster_or_key(desk, jobs) -> None:
    kept = ended(jobs.double.run_async(21))
    gone = ended(jobs.fail.run_async("why"))
    gone.cleanup()
    settings = Settings.from_environment()
    desk.server.requests.clear()

    assert complete_id(gone.job_id, settings) == gone.job_id
    assert desk.server.requests == []
    assert complete_id(kept.job_id[-7:], settings) == kept.job_id
    assert complete_id("cpu-fail", settings) == gone.job_id

    found = find_jobs(settings, selection=Selection(cleaned_up=True))
    statuses = dict(zip([job.job_id for job in found], statuses_of(found), strict=True))
    assert statuses == {kept.job_id: JobStatus.SUCCEEDED, gone.job_id: JobStatus.FAILED}
    assert [job.job_id for job in find_jobs(settings)] == [kept.job_id]

    # Elsewhere, without the key: a report is not verified, and says so; a list is.
    desk.sit("there")
    elsewhere = Settings.from_environment()
    report = find_report(gone.job_id, elsewhere)
    assert (report.status, report.failure) == ("FAILED", "host 0 of attempt 1: KeyError: 'why'")
    assert report.notes[-1] == "Signatures of the records were not checked."
    assert [line.text for line in find_report(kept.job_id, elsewhere).log] == ["doubling 2"]
    found = find_jobs(elsewhere, selection=Selection(cleaned_up=True, function="fail"))
    assert [type(status) for status in statuses_of(found)] == [SignatureError]
