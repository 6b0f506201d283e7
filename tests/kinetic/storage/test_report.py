from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kinetic.retention.ages import BUILDS_EXPIRY, EXPIRY, FOLDER_EXPIRY
from kinetic.storage.report import stored_at_home, stored_in
from kinetic_payload.layout import (
    JobObjects,
    build_claim,
    build_context,
    build_log,
    build_record,
    build_resolution,
    context_object,
    data_files_prefix,
    data_large,
    data_marker,
    data_pack,
)
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Store
from kinetic_payload.testing import MemoryStore

D = "d" * 64
JOB, BATCH = JobObjects("cpu-f-20260101-000000-abcdef0"), JobObjects("grp-0123abcd")
MEMBER = JobObjects("cpu-f-20260101-000000-0123abcd-7")

NAMES = {
    context_object(D): "contexts",
    data_marker(D): "data",
    data_marker(D, mounted=True): "data",
    data_pack(D, 0): "data",
    data_large(D, 12): "data",
    f"{data_files_prefix(D)}a/odd name": "data",
    JOB.handle: "job records",
    JOB.outcome: "job records",
    JOB.lease: "job records",
    JOB.claim(1, 0): "job records",
    JOB.gathered(1): "job records",
    BATCH.handle: "job records",
    BATCH.loaded("d0"): "job records",
    MEMBER.outcome: "job records",
    MEMBER.host_outcome(2, 0): "job records",
    JOB.payload: "payloads",
    BATCH.payload: "payloads",
    BATCH.inputs(0): "batch inputs",
    JOB.host_value(1, 0): "values",
    MEMBER.host_value(1, 3): "values",
    JOB.log_chunk(1, 0, 0): "logs",
    JOB.log_chunk(1, 0, 1): "logs",
    MEMBER.log_chunk(1, 0, 0): "logs",
    f"{JOB.outputs}model/weights.h5": "outputs",
    build_context(D): "build contexts",
    build_log("0-1"): "build logs",
    build_resolution(D): "build locks",
    build_claim("tag"): "build records",
    build_record("tag", "lock.toml"): "build records",
    "pathways-scratch/a/b": "pathways scratch",
    "contexts/thesis.zip": "other",
    f"contexts/{D}/notes.txt": "other",
    f"data/{D}/notes.txt": "other",
    f"data-markers/{D}x": "other",
    f"{JOB.prefix}notes.txt": "other",
    f"{BATCH.prefix}jobs/000001/notes.txt": "other",
    f"{JOB.logs}notes": "other",
    "outputs/photos/a.jpg": "other",
    "photos/a.jpg": "other",
}


@pytest.fixture(params=["memory", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FolderStore(tmp_path / "store")


def test_each_object_counts_once_as_what_it_is(store: Store) -> None:
    for name in NAMES:
        store.write(name, b"four")

    rows = {row.what: row for row in stored_in(store, (*FOLDER_EXPIRY, *BUILDS_EXPIRY))}

    assert {what: row.objects for what, row in rows.items()} == Counter(NAMES.values())
    assert sum(row.size for row in rows.values()) == 4 * len(NAMES)
    items = {what: rows[what].items for what in ("contexts", "data", "job records", "logs")}
    assert items == {"contexts": 1, "data": 1, "job records": 2, "logs": 2}
    days = {what: row.days for what, row in rows.items() if row.days is not None}
    assert days == {
        "contexts": 14,
        "data": 97,
        "payloads": 90,
        "logs": 90,
        "build contexts": 7,
        "build logs": 30,
        "build locks": 180,
    }
    assert all(row.expires is (what in days) for what, row in rows.items() if what != "other")


def test_ages_are_unknown_without_the_rules_of_the_bucket_and_never_without_a_rule() -> None:
    store = MemoryStore()
    store.write(context_object(D), b"")

    for expiry, expires, days in ((None, None, None), ((), False, None), (EXPIRY, True, 90)):
        [row] = stored_in(store, expiry)
        assert (row.expires, row.days) == (expires, days)


def test_files_of_a_home_count_as_what_they_are(tmp_path: Path) -> None:
    wanted = {
        "jobs/a/state.json": "job folders",
        f"bundles/{D}/remote_runner.py": "runners",
        f"environments/{D}/complete": "environments",
        f"environments/{D}.lock": "environments",
        f"cache/downloads/{D}/p.whl": "wheels",
        "cache/layers/records/a.json": "layers",
        "cache/locks/a.json": "locks",
        "cache/images/last/a.json": "images",
        "cache/trees/digests.json": "other caches",
        "key": "settings",
        "keys.txt": "other",
        "thesis/a.tex": "other",
    }
    for name in (*wanted, "store/photos/a.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("four")
    (tmp_path / "thesis" / "link").symlink_to(tmp_path)

    rows = {row.what: row for row in stored_at_home(tmp_path, stores=[tmp_path / "store"])}

    assert {what: row.objects for what, row in rows.items()} == Counter([*wanted.values(), "other"])
    assert (rows["environments"].items, rows["environments"].days) == (1, 14)
