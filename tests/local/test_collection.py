import json
import os
import time
from pathlib import Path

from kinetic.backends.local import LocalBackend
from kinetic.local.collection import MAX_AGE, collect, is_due, keep
from kinetic.local.launcher import ensure_bundle
from kinetic.local.paths import Home
from kinetic.testing import a_launch, await_outcome, eventually
from kinetic_payload.layout import JobObjects, context_object
from kinetic_payload.records import JobRecord, encode
from kinetic_payload.stores.folder import FolderStore
from kinetic_payload.testing import MemoryStore

NOW = time.time()
OLD = NOW - MAX_AGE - 60


def age(path: Path | str, when: float = OLD) -> None:
    os.utime(path, (when, when))


def test_old_bundles_go_unless_a_kept_job_names_them(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    unused = Path(ensure_bundle(home, b"unused")).parent
    young = Path(ensure_bundle(home, b"young")).parent
    backend = LocalBackend(tmp_path, store)
    launch = a_launch(store, "pass")
    backend.start(launch)
    await_outcome(backend, store, launch.record)
    [used] = {*Path(home.bundles).iterdir()} - {unused, young}
    for folder in (unused, used):
        age(folder)
    collect(home, store, NOW)
    assert {*Path(home.bundles).iterdir()} == {used, young}
    backend.remove(launch.record, timeout=100, poll_interval=0.05)
    age(used)
    collect(home, store, NOW)
    assert {*Path(home.bundles).iterdir()} == {young}


def test_a_bundle_that_is_used_again_becomes_young(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    bundle = ensure_bundle(home, b"x")
    age(Path(bundle).parent)
    assert ensure_bundle(home, b"x") == bundle
    collect(home, store, NOW)
    assert Path(bundle).read_bytes() == b"x"
    assert not keep(home, tmp_path / "bundles" / "none")


def test_old_contexts_go_unless_a_record_names_them(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    for digest in ("named", "unnamed", "young"):
        store.write(context_object(digest), b"zip")
    for digest in ("named", "unnamed"):
        age(tmp_path / "store" / context_object(digest))
    values = a_launch(store, "pass").record.__dict__
    record = JobRecord(**{**values, "context_digest": "named"})
    store.write(JobObjects(record.job_id).handle, encode(record))
    store.write("broken/handle.json", b"{")
    collect(Home(str(tmp_path)), store, NOW)
    kept = {info.name for info in store.list("contexts/")}
    assert kept == {context_object("named"), context_object("young")}


def test_of_a_bucket_nothing_is_collected_and_of_the_home_all_the_same(tmp_path: Path) -> None:
    home, bucket = Home(str(tmp_path)), MemoryStore()
    bundle = Path(home.bundle("old"))
    bundle.mkdir(parents=True)
    age(bundle)
    bucket.write(context_object("old"), b"")
    collect(home, bucket, NOW + 2 * MAX_AGE)
    assert not bundle.exists()
    assert bucket.stat(context_object("old")) is not None


def test_what_is_left_of_a_job_that_was_cleaned_up_elsewhere_goes(tmp_path: Path) -> None:
    home, bucket = Home(str(tmp_path)), MemoryStore()
    for job, place in (
        ("gone", bucket.location),
        ("young", bucket.location),
        ("kept", bucket.location),
        ("of-another-store", "gs://another"),
    ):
        Path(home.job(job).path).mkdir(parents=True)
        Path(home.job(job).uses).write_text(json.dumps({"store": str(place)}))
        age(home.job(job).path, NOW if job == "young" else OLD)
    bucket.write(JobObjects("kept").handle, b"{}")

    collect(home, bucket, NOW)

    assert sorted(os.listdir(home.jobs)) == ["kept", "of-another-store", "young"]


def test_a_job_says_what_it_uses_and_is_not_forgotten_while_its_record_is_there(
    tmp_path: Path,
) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    backend = LocalBackend(tmp_path, store)
    launch = a_launch(store, "pass")
    folder = Path(home.job(launch.record.job_id).path)
    store.write(JobObjects(launch.record.job_id).handle, encode(launch.record))
    backend.start(launch)
    await_outcome(backend, store, launch.record)
    eventually(lambda: backend.observe(launch.record).vanished)
    age(folder)

    collect(home, store, NOW)
    assert folder.exists()

    store.delete(JobObjects(launch.record.job_id).handle)
    collect(home, store, NOW)
    assert not folder.exists()


def test_what_a_killed_submit_left_goes(tmp_path: Path) -> None:
    home, store = Home(str(tmp_path)), FolderStore(tmp_path / "store")
    left, young = tmp_path / "jobs" / ".x.1234", tmp_path / "jobs" / ".y.1234"
    for folder in (left, young):
        folder.mkdir(parents=True)
    age(left)
    for name in ("left/payload.pkl", "young/payload.pkl", "job/payload.pkl", "job/handle.json"):
        store.write(name, b"{}")
    for name in ("left/payload.pkl", "job/payload.pkl", "job/handle.json"):
        age(tmp_path / "store" / name)
    collect(home, store, NOW)
    assert not left.exists()
    assert young.exists()
    assert list(store.folders()) == ["job/", "young/"]


def test_a_home_is_collected_once_a_day_and_not_on_its_first(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    assert not is_due(home, NOW)
    age(tmp_path / ".collected", NOW - 90_000)
    assert is_due(home, NOW)
    assert not is_due(home, NOW)


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
