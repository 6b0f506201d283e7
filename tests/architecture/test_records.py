"""What was stored yesterday is read today, and what a newer Kinetic stored is told apart.

The files in `records/v1/` are what version 1 of the wire format wrote. They are never changed. When the
format changes, its version is raised, a folder `records/v2/` is added, and this goes on reading both.
"""

from __future__ import annotations

import io
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kinetic.jobs.handle import JobHandle
from kinetic_payload import layout
from kinetic_payload.calls.call import CallHeader, load_call, read_header
from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import FutureRecordError, RecordError
from kinetic_payload.layout import WIRE_VERSION
from kinetic_payload.records.batch import GroupManifest, InputPack
from kinetic_payload.records.claim import Claim
from kinetic_payload.records.decode import decode
from kinetic_payload.records.encode import encode
from kinetic_payload.records.host_outcome import ErrorInfo, HostOutcome, Pickled
from kinetic_payload.records.job import JobRecord
from kinetic_payload.records.outcome import Outcome, Summary

if TYPE_CHECKING:
    from kinetic_payload.records.encode import Record

STORED = Path(__file__).with_name("records")
JOB = "v5litepod-4-train-20260417-153012-abc1234"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

HANDLE = JobRecord(
    job_id=JOB,
    backend="local-gke",
    project="local",
    cluster_name="kinetic-cluster",
    zone="us-central1-a",
    namespace="default",
    bucket_name="/Users/ada/.kinetic/store",
    k8s_name="kn-train-abc1234",
    image_uri="python:/usr/bin/python3",
    accelerator="tpu-v5litepod-4",
    func_name="train",
    display_name="train on tpu-v5litepod-4",
    created_at="2026-04-17T15:30:12.000+00:00",
    payload_digest=DIGEST,
    context_digest=DIGEST,
    hosts=2,
    retries=1,
    timeout=3600.0,
    output_dir="/data/outputs",
    captured_env=("WANDB_API_KEY",),
    labels={"team": "vision"},
    client="kinetic 0.1.0, Python 3.11.7",
)
HOST_FAILED = HostOutcome(
    job_id=JOB,
    attempt=2,
    host=1,
    succeeded=False,
    reason="exception",
    phase="call",
    exit_code=1,
    message="ValueError: négatif",
    error=ErrorInfo(
        type="ValueError",
        message="négatif",
        traceback="Traceback (most recent call last):\nValueError: négatif\n",
        notes=("look at lr",),
        pickled=Pickled(size=40, digest=DIGEST, inline="gASVHAAAAA=="),
    ),
    started_at=1776439812.5,
    finished_at=1776439815.25,
    phases={"fetch": 0.01, "call": 2.5},
    python="3.11.7",
    hostname="worker-1",
    warnings=("Pickled with Python 3.12, running on 3.11.",),
)
HOST_SUCCEEDED = HostOutcome(
    job_id=JOB,
    attempt=1,
    host=0,
    succeeded=True,
    reason="returned",
    phase="report",
    exit_code=0,
    value=Pickled(size=100000, digest=DIGEST, name=f"{JOB}/attempts/1/host-0.pkl"),
)
RECORDS: dict[str, Record] = {
    "handle.json": HANDLE,
    "host-failed.json": HOST_FAILED,
    "host-succeeded.json": HOST_SUCCEEDED,
    "host-killed.json": HostOutcome(
        job_id=JOB,
        attempt=1,
        host=0,
        succeeded=False,
        reason="killed",
        phase="call",
        exit_code=137,
        message="The process was killed by SIGKILL.",
        signal=9,
        value_repr="<lock>",
    ),
    "claim.json": Claim(
        job_id=JOB, attempt=1, host=0, hostname="worker-0", pid=17, claimed_at=1776439812.5
    ),
    "outcome.json": Outcome(
        job_id=JOB,
        status="failed",
        attempt=2,
        host=1,
        digest=DIGEST,
        other_failed_hosts=(3,),
        message="ValueError: négatif",
        written_by="supervisor",
        written_at=1776439815.5,
    ),
    "outcome-cancelled.json": Outcome(
        job_id=JOB, status="cancelled", message="Somebody cancelled the job.", written_by="client"
    ),
    "summary.json": Summary(
        job_id=JOB,
        record=HANDLE,
        outcome=Outcome(job_id=JOB, status="failed", attempt=2, host=1, report=HOST_FAILED),
    ),
    "group.json": GroupManifest(
        group_id="grp-0a1b2c3d",
        name="sweep",
        tags={"team": "vision"},
        created_at="2026-04-17T15:30:12.000+00:00",
        total_expected=100,
        accelerator="tpu-v5litepod-4",
        func_name="train",
        job=replace(HANDLE, job_id="grp-0a1b2c3d"),
        members="tpu-v5litepod-4-train-20260417-153012-0a1b2c3d",
        inputs=(InputPack(first=0, count=100, head=7002, digest=DIGEST),),
        hub_data=("d0",),
        failed={"7": "TypeError: train() takes 1 argument"},
        max_concurrent=16,
        per_worker=2,
        fail_fast=True,
        max_failures=3,
    ),
}
HEADER = CallHeader(
    format=1,
    python="3.11.7",
    cloudpickle="3.1.1",
    kinetic="0.1.0",
    function="train",
    module="training.loop",
    context_digest=DIGEST,
    paths=("", "src"),
    cwd="experiments",
    main="experiments/run.py",
    main_kind="script",
    data=(
        DataRef(
            key="d0", kind="local", source="./digits", is_dir=True, name="digits", digest=DIGEST
        ),
        DataRef(key="d1", kind="gcs", source="gs://b/w.h5", is_dir=False, name="w.h5", mount="/w"),
    ),
    late_paths=("vendored",),
)
# Pickle protocol 4 of (builtins.max, (3, 5), {}): what a header stands in front of.
PICKLE = b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00\x8c\x08builtins\x94\x8c\x03max\x94\x93\x94K\x03K\x05\x86\x94}\x94\x87\x94."


def stored(name: str, version: int = 1) -> bytes:
    return (STORED / f"v{version}" / name).read_bytes()


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_version_1_is_decoded_as_before(name: str) -> None:
    expected = RECORDS[name]

    assert decode(type(expected), stored(name), name=name) == expected


@pytest.mark.skipif(WIRE_VERSION != 1, reason="version 1 is not what is written any more")
@pytest.mark.parametrize("name", RECORDS)
def test_records_are_encoded_as_in_version_1(name: str) -> None:
    assert encode(RECORDS[name]) == stored(name), "raise WIRE_VERSION and keep reading version 1"


@pytest.mark.parametrize("name", RECORDS)
def test_keys_that_a_later_writer_added_are_ignored(name: str) -> None:
    later = json.loads(stored(name)) | {"mood": "sunny", "nested": {"more": [1]}}

    expected = RECORDS[name]
    assert decode(type(expected), json.dumps(later).encode(), name=name) == expected


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_a_later_version_is_another_error_than_a_broken_one(name: str) -> None:
    later = json.loads(stored(name)) | {"version": WIRE_VERSION + 1}
    broken = {key: 7 for key in json.loads(stored(name)) if key != "version"}
    kind = type(RECORDS[name])

    with pytest.raises(FutureRecordError, match=name):
        decode(kind, json.dumps(later).encode(), name=name)
    with pytest.raises(RecordError, match=name) as caught:
        decode(kind, json.dumps(broken).encode(), name=name)
    assert not isinstance(caught.value, FutureRecordError)


def test_a_record_without_optional_fields_takes_the_defaults() -> None:
    least = {
        key: value
        for key, value in json.loads(stored("handle.json")).items()
        if key in {field.name for field in fields(JobHandle)}
    }

    record = decode(JobRecord, json.dumps(least).encode(), name="handle.json")

    assert (record.hosts, record.retries, record.timeout, record.captured_env) == (1, 0, None, ())


def test_a_payload_of_version_1_is_read_and_loaded() -> None:
    stream = io.BytesIO(stored("payload.pkl"))

    header = read_header(stream)
    call = load_call(stream, header)

    assert header == HEADER
    assert call.function(*call.args, **call.kwargs) == 5


@pytest.mark.skipif(WIRE_VERSION != 1, reason="version 1 is not what is written any more")
def test_headers_are_encoded_as_in_version_1() -> None:
    assert HEADER.encode() == stored("payload.pkl").partition(b"\n")[0]


def test_a_header_with_more_keys_is_read_and_one_of_a_later_format_is_refused_in_words() -> None:
    written = json.loads(stored("payload.pkl").partition(b"\n")[0])
    written["data"][0]["colour"] = "blue"

    assert CallHeader.decode(json.dumps(written | {"mood": "sunny"}).encode()) == HEADER
    with pytest.raises(FutureRecordError, match=f"format {WIRE_VERSION + 1}"):
        CallHeader.decode(json.dumps(written | {"format": WIRE_VERSION + 1}).encode())


def test_a_handle_is_restored_from_a_dict_with_unknown_keys() -> None:
    kept = json.loads(stored("handle.json"))

    handle = JobHandle.from_dict(kept)

    assert handle.job_id == JOB
    assert handle.to_dict() == JobHandle.from_dict(handle.to_dict() | {"mood": "sunny"}).to_dict()


def test_objects_lie_where_version_1_put_them() -> None:
    job = layout.JobObjects("j")
    found = (
        *(job.prefix, job.handle, job.payload, job.outcome, job.attempts),
        *(job.claim(2, 1), job.host_outcome(2, 1), job.host_value(2, 1)),
        *(job.logs, job.log_chunk(2, 1, 3), job.outputs),
        *(layout.context_object("d"), layout.data_prefix("d"), layout.data_marker("d")),
        layout.group_prefix("g"),
        *(layout.build_context("d"), layout.build_log("b"), layout.build_resolution("d")),
        *(layout.build_claim("t"), layout.build_record("t", "build.json")),
    )

    assert found == (
        *("j/", "j/handle.json", "j/payload.pkl", "j/outcome.json", "j/attempts/"),
        *("j/attempts/2/host-1.claim", "j/attempts/2/host-1.json", "j/attempts/2/host-1.pkl"),
        *("logs/j/", "logs/j/2/host-1/00000003", "outputs/j/"),
        *("contexts/d.zip", "data/d/", "data-markers/d"),
        "groups/g/",
        *("builds/contexts/d.tar.gz", "builds/logs/log-b.txt", "builds/resolved/d.json"),
        *("builds/claims/t.json", "builds/images/t/build.json"),
    )
    shared = {f"{name.partition('/')[0]}/" for name in found} - {"j/"}
    assert shared == set(layout.RESERVED_PREFIXES)


if __name__ == "__main__":
    folder = STORED / f"v{WIRE_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: encode(record) for name, record in RECORDS.items()}
    for name, data in {**files, "payload.pkl": HEADER.encode() + b"\n" + PICKLE}.items():
        # What was written once stays: a change here would only make this test lie.
        if not (folder / name).exists():
            (folder / name).write_bytes(data)
