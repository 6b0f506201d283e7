from __future__ import annotations

import pytest

from kinetic_payload.layout import (
    JobObjects,
    context_object,
    data_large,
    data_marker,
    end_marker,
    group_of,
    group_prefix,
    is_digest,
    is_end_marker,
    is_entry,
    is_job_id,
    is_job_object,
    kind_of,
)


def test_the_line_that_ends_a_log_is_known_by_its_job() -> None:
    marker = end_marker("cpu-f-1", 2, 10)

    assert is_end_marker(marker, "cpu-f-1")
    assert is_end_marker(f"{marker}\r\n", "cpu-f-1")
    assert not is_end_marker(marker, "cpu-f-2")


@pytest.mark.parametrize(
    "line",
    [
        "", "[kinetic:end]", "[kinetic:end] j", "[kinetic:end] j attempt  host 1",
        "x [kinetic:end] j attempt 1 host 1", "[kinetic:end] j attempt 1 host 1 x",
    ],
)  # fmt: skip
def test_other_lines_do_not_end_a_log(line: str) -> None:
    assert not is_end_marker(line, "j")


DIGEST = "0123456789abcdef" * 4
JOB = "tpu-v5litepod-4-train-20260101-120000-0a1b2c3"
MEMBER = "cpu-20260101-120000-0a1b2c3d-17"


@pytest.mark.parametrize("job", [JOB, MEMBER])
def test_all_names_that_the_layout_builds_for_a_job_are_known(job: str) -> None:
    names = JobObjects(job)
    own = [
        names.handle, names.payload, names.outcome, names.lease, names.claim(1, 0), names.gathered(1),
        names.host_outcome(12, 30), names.host_value(1, 0),
    ]  # fmt: skip

    assert is_job_id(job)
    shared_by_members = {names.handle, names.payload} if job == MEMBER else set()
    assert {name for name in own if not is_job_object(name, job)} == shared_by_members
    group, index = group_of(job)
    if group is not None:
        assert (index, names.handle) == (17, JobObjects(group).handle)
        parts = (*own, JobObjects(group).inputs(3))
        assert all(is_job_object(name, group) for name in parts)
    assert not any(is_job_object(name, "another") for name in own)
    tops = (*own, names.log_chunk(1, 0, 0), names.outputs, group_prefix("grp-01234567"))
    shared = (context_object(DIGEST), data_large(DIGEST, 1), data_marker(DIGEST, mounted=True))
    for name in (*tops, *shared):
        first, second, *_ = name.split("/")
        assert is_entry(first)
        assert is_entry(f"{first}/{second}")


@pytest.mark.parametrize(
    "text", ["photos", "", "data", "backup-20250101-120000", f"{JOB}-x", f"{JOB}\n", JOB.upper(), f".{JOB}"]
)  # fmt: skip
def test_other_names_are_no_job_ids(text: str) -> None:
    assert not is_job_id(text)


@pytest.mark.parametrize(
    "name",
    [JOB, f"{JOB}/", f"{JOB}/notes.txt", f"{JOB}/attempts/1/host-0.txt", f"{JOB}/handle.json/x"],
)
def test_other_names_in_a_jobs_folder_are_not_its_objects(name: str) -> None:
    assert not is_job_object(name, JOB)


def test_contexts_and_digests_are_known_by_their_whole_name() -> None:
    assert is_digest(DIGEST)
    assert kind_of(context_object(DIGEST)) == ("context", DIGEST)
    assert not is_digest(DIGEST[1:])
    assert kind_of("contexts/thesis.zip") is None
    assert kind_of(f"{context_object(DIGEST)}/x") is None
    assert not is_entry("data/2024")
    assert not is_entry("README.md")
