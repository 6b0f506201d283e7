import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import kinetic
from kinetic.backends.backend import Ending
from kinetic.backends.local.backend import LocalBackend
from kinetic.backends.local.launch import Staged, ensure_bundle
from kinetic.home.collection import MAX_AGE, collect, is_due, is_left_due, keep
from kinetic.home.environments import LAST_USED
from kinetic.home.liveness import is_alive
from kinetic.home.paths import Home
from kinetic.testing import eventually
from kinetic_payload.files.locks import locked
from kinetic_payload.layout import (
    PARTS,
    JobObjects,
    context_object,
    context_part,
    context_parts,
    data_marker,
    data_pack,
)
from kinetic_payload.records.pending_uploads import PendingUploads
from kinetic_payload.stores import open_store
from kinetic_payload.stores.folder.store import FolderStore
from kinetic_payload.stores.store import Location, ObjectInfo
from kinetic_payload.testing import MemoryStore
from kinetic_servers.fakes import FakeStore
from kinetic_servers.gcs import GcsServer
from kinetic_servers.launches import a_launch, a_payload, await_outcome

NOW = time.time()
OLD = NOW - MAX_AGE - 60


def a_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def a_job(name: str) -> str:
    return f"cpu-{name}-20260101-000000-{a_digest(name)[:7]}"


def age(path: Path | str, when: float = OLD) -> None:
    os.utime(path, (when, when))


def test_bundle_and_folder_of_a_job_are_kept_as_long_as_its_record(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    unused, fresh, again = (Path(ensure_bundle(home, name)).parent for name in (b"1", b"2", b"3"))
    backend = LocalBackend(tmp_path, store)
    launch = a_launch(store, "pass")
    backend.start(launch)
    await_outcome(backend, store, launch.record)
    eventually(lambda: backend.observe(launch.record).ending is Ending.VANISHED)
    [used] = {*Path(home.bundles).iterdir()} - {unused, fresh, again}
    folder = Path(home.job(launch.record.job_id).path)
    for path in (unused, used, again, folder):
        age(path)
    ensure_bundle(home, b"3")

    collect(home, store, NOW)
    assert {*Path(home.bundles).iterdir()} == {used, fresh, again}
    assert folder.exists()

    store.delete(JobObjects(launch.record.job_id).handle)
    collect(home, store, NOW)
    assert not folder.exists()
    assert {*Path(home.bundles).iterdir()} == {fresh, again}
    assert not keep(home, tmp_path / "bundles" / "none")


@pytest.mark.parametrize("listed", ["of a job", "damaged", "of none"])
def test_a_part_of_a_context_stays_while_a_list_may_name_it(tmp_path: Path, listed: str) -> None:
    store, digest = FolderStore(tmp_path / "store"), a_digest("named")
    part, other, fresh = (context_part(f"{8 * '0'}/{a_digest(each)}") for each in "abc")
    for name in (part, other, fresh):
        store.write(name, b"zip")
    names = JobObjects(a_job("running"))
    record = {"job_id": names.job_id, "context_digest": digest}
    store.write(names.handle, json.dumps(record).encode())
    store.write(names.payload, a_payload(digest))
    text = {"digest": digest, "parts": [part], "written_at": OLD}
    if listed != "of none":
        found = b"{" if listed == "damaged" else json.dumps(text).encode()
        store.write(context_parts(digest), found)
    for info in store.list("contexts/"):
        if info.name != fresh:
            age(tmp_path / "store" / info.name)

    collect(Home(str(tmp_path)), store, NOW)

    kept = {"of a job": {part, fresh}, "damaged": {part, other, fresh}, "of none": {fresh}}
    assert {info.name for info in store.list(PARTS)} == kept[listed]
    assert (store.stat(context_parts(digest)) is None) == (listed == "of none")


def test_contexts_in_a_bucket_are_kept_and_old_files_in_the_home_removed(tmp_path: Path) -> None:
    home, bucket = Home(str(tmp_path)), MemoryStore()
    bundle = Path(home.bundle(a_digest("old")))
    bundle.mkdir(parents=True)
    age(bundle)
    wheel = tmp_path / "cache" / "downloads" / a_digest("wheel") / "p-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"")
    bucket.write(context_object(a_digest("old")), b"")
    collect(home, bucket, NOW + 3 * MAX_AGE)
    assert not bundle.exists()
    assert not wheel.exists()
    assert bucket.stat(context_object(a_digest("old"))) is not None


def test_the_folder_of_a_job_that_was_cleaned_up_from_another_home_is_removed(
    tmp_path: Path,
) -> None:
    home, bucket = Home(str(tmp_path)), MemoryStore()
    gone, fresh, kept, other, unstored = map(a_job, ("gone", "fresh", "kept", "other", "unsaved"))
    for job, place in (
        (gone, bucket.location),
        (fresh, bucket.location),
        (kept, bucket.location),
        (other, "gs://another"),
        (unstored, bucket.location),
    ):
        Path(home.job(job).path).mkdir(parents=True)
        Path(home.job(job).uses).write_text(json.dumps({"store": str(place)}))
        age(home.job(job).path, NOW if job == fresh else OLD)
    bucket.write(JobObjects(kept).handle, b"{}")
    # The age of a result that could not be stored counts.
    report = JobObjects(unstored).host_outcome(1, 0)
    PendingUploads(home.job(unstored).pending_uploads).write(report, b"{}")
    age(Path(home.job(unstored).pending_uploads, report), NOW)
    age(home.job(unstored).path, OLD)

    collect(home, bucket, NOW)

    assert sorted(os.listdir(home.jobs)) == sorted((kept, other, fresh, unstored))

    collect(home, bucket, NOW + 2 * MAX_AGE)
    assert sorted(os.listdir(home.jobs)) == sorted((kept, other))


def test_leftovers_of_a_killed_submit_are_removed(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    left, fresh, kept = map(JobObjects, map(a_job, ("left", "fresh", "kept")))
    staged = [tmp_path / "jobs" / f".{one.job_id}.12345678" for one in (left, fresh)]
    for folder in staged:
        folder.mkdir(parents=True)
    submitting = Staged(home, a_job("submitting"))
    submitting.open()
    for folder in (staged[0], submitting.folder.path):
        age(folder, NOW - 90_000)
    for name in (left.payload, left.claim(1, 0), fresh.payload, kept.payload, kept.handle):
        store.write(name, b"{}")
    for name in (left.payload, left.claim(1, 0), kept.payload, kept.handle):
        age(tmp_path / "store" / name, NOW - 90_000)
    collect(home, store, NOW)
    assert [folder.exists() for folder in staged] == [False, True]
    assert is_alive(submitting.folder)
    assert list(store.folders()) == sorted((kept.prefix, fresh.prefix))
    submitting.close()


def test_the_clock_of_the_store_decides_which_payload_is_old(tmp_path: Path) -> None:
    store = MemoryStore()
    store.write(JobObjects(a_job("left")).payload, b"")

    collect(Home(str(tmp_path)), store, NOW + 90_000, store_now=NOW)
    assert store.names() != []

    collect(Home(str(tmp_path)), store, NOW, store_now=NOW + 90_000)
    assert store.names() == []


def test_a_record_written_during_the_collection_keeps_its_payload(tmp_path: Path) -> None:
    names = JobObjects(a_job("slow"))

    class Store(FakeStore):
        def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
            if prefix == names.prefix:
                self.write(names.handle, b"{}")
            return super().list(prefix, start_after=start_after)

    store = Store(remote=True)
    store.write(names.payload, b"")

    collect(Home(str(tmp_path)), store, NOW + 90_000)

    assert store.names() == sorted((names.handle, names.payload))


def test_a_list_of_jobs_removes_leftovers_of_killed_submits_in_each_store(
    tmp_path: Path, bucket: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("KINETIC_HOME", str(tmp_path / "home"))
    left, fresh, theirs = (JobObjects(a_job(name)) for name in ("left", "fresh", "theirs"))
    stores = [
        open_store(Location("folder", str(tmp_path / "s"))),
        open_store(Location("gs", "jobs")),
    ]
    for store in stores:
        for name in (left.payload, fresh.payload, theirs.payload, f"{theirs.prefix}notes.txt"):
            store.write(name, b"")
    for prefix in (left.prefix, theirs.prefix):
        bucket.age("jobs", prefix, timedelta(hours=25))
        for path in (tmp_path / "s" / prefix).glob("*"):
            age(path, NOW - 90_000)

    for store in stores:
        monkeypatch.setenv("KINETIC_STORE", str(store.location))
        assert kinetic.list_jobs() == []

    eventually(lambda: [store.stat(left.payload) for store in stores] == [None, None])
    for store in stores:
        assert store.stat(fresh.payload) is not None
        assert store.stat(theirs.payload) is not None


def test_files_that_are_not_ours_are_kept_however_old(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    job = a_job("mixed")
    theirs = [
        "store/photos/a.jpg",
        "store/backup-20250101-120000/payload.pkl",
        "store/contexts/thesis.zip",
        f"store/contexts/{a_digest('x')}/notes.txt",
        f"store/{job}/payload.pkl",
        f"store/{job}/attempts/1/notes.txt",
        "bundles/of-wood/a.txt",
        "environments/tropical/a.txt",
        "jobs/.hidden.12345678/a.txt",
        "jobs/applications/uses.json",
    ]
    for name in theirs:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"store": str(store.location)}))
    for path in tmp_path.rglob("*"):
        age(path)

    collect(home, store, NOW)

    assert [name for name in theirs if not (tmp_path / name).exists()] == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="asks the system which processes wait for a lock"
)
def test_an_environment_that_is_used_during_the_collection_is_kept(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    unused, used = (Path(home.environment(a_digest(name))) for name in ("unused", "used"))
    for folder in (unused, used):
        folder.mkdir(parents=True)
        (folder / LAST_USED).touch()
        age(folder / LAST_USED)
        age(folder)
    collector = (
        "import sys; from kinetic.home.collection import collect; from pathlib import Path\n"
        "from kinetic.home.paths import Home; from kinetic_payload.stores.folder.store import FolderStore\n"
        "collect(Home(sys.argv[1]), FolderStore(Path(sys.argv[1], 'store')), float(sys.argv[2]))"
    )
    with locked(f"{used}.lock"):
        process = subprocess.Popen([sys.executable, "-c", collector, str(tmp_path), str(NOW)])
        # The collector found it old, and waits for the process that is about to use it.
        waits = re.compile(rf"-> POSIX +ADVISORY +WRITE {process.pid} ")
        eventually(lambda: waits.search(Path("/proc/locks").read_text()))
        (used / LAST_USED).touch()
    assert process.wait() == 0

    assert used.exists()
    assert not unused.exists()


def test_a_home_is_collected_once_a_day_from_its_second_day_on(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    assert not is_due(home, NOW)
    # Yesterday, or ten years ahead because the clock was wrong once.
    for then in (NOW - 90_000, NOW + 10 * 365 * 86_400):
        age(tmp_path / ".collected", then)
        assert is_due(home, NOW)
        assert not is_due(home, NOW)


def test_lists_of_jobs_collect_once_an_hour(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), MemoryStore()
    now = time.time()
    due = [is_left_due(home, store, now + seconds) for seconds in (0, 60, 7200)]
    assert due == [True, False, True]


def test_a_later_submit_collects_in_the_background(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    unused = Path(ensure_bundle(home, b"unused")).parent
    age(unused)
    (tmp_path / ".collected").touch()
    age(tmp_path / ".collected")
    backend = LocalBackend(tmp_path, store)
    launch = a_launch(store, "pass")
    backend.start(launch)
    await_outcome(backend, store, launch.record)
    eventually(lambda: not unused.exists())


def test_a_collection_that_cannot_be_started_costs_no_job(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    (tmp_path / ".collected").symlink_to(".collected")
    backend = LocalBackend(tmp_path, store)
    launch = a_launch(store, "pass")

    backend.start(launch)

    assert await_outcome(backend, store, launch.record).status == "succeeded"


def test_a_folder_store_follows_the_ages_of_a_bucket(tmp_path: Path) -> None:
    store, day = FolderStore(tmp_path / "store"), 86_400
    digest, old = a_digest("data"), a_digest("old")
    ended, running = (JobObjects(a_job(name)) for name in ("ended", "running"))
    for names, used in ((ended, old), (running, digest)):
        record = {"job_id": names.job_id, "context_digest": used}
        store.write(names.handle, json.dumps(record).encode())
        store.write(names.payload, a_payload(used))
        store.write(names.log_chunk(1, 0, 0), b"")
        for name in (context_object(used), data_marker(used), data_pack(used, 0)):
            store.write(name, b"")
    store.write(ended.outcome, b"{}")
    home, kept = Home(str(tmp_path)), {info.name for info in store.list()}
    own = {ended.payload, ended.log_chunk(1, 0, 0), context_object(old)}
    data = {data_marker(old), data_pack(old, 0)}
    for days, gone in ((89, set[str]()), (91, own), (98, own | data)):
        for info in store.list():
            age(tmp_path / "store" / info.name, NOW - days * day)

        collect(home, store, NOW)

        assert {info.name for info in store.list()} == kept - gone
