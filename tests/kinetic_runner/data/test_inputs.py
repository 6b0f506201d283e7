import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import DataError, IntegrityError
from kinetic_payload.progress import TrackProgress, silent
from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Store, parse_location
from kinetic_runner.data import inputs
from kinetic_runner.workspace import Workspace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(parse_location(str(tmp_path / "store")))


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def a_ref(key: str = "d0", **changes: Any) -> DataRef:
    values = {"kind": "local", "source": f"./{key}", "is_dir": True, "name": "set", "digest": key}
    return DataRef(key=key, **{**values, **changes})


def download(store: Store, ref: DataRef, path: Path, *, track: TrackProgress = silent) -> None:
    if ref.is_dir:
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "x").write_text(ref.key)
    else:
        path.write_text(ref.key)


def test_folders_and_files_keep_their_names(store: Store, space: Workspace) -> None:
    decided = inputs.plan(
        [a_ref("d0"), a_ref("d1", is_dir=False, name="c.json")], space, private_mounts=False
    )
    inputs.provide(decided, store, download)

    assert Path(decided.paths["d0"]).name == "set"
    assert Path(decided.paths["d0"], "sub", "x").read_text() == "d0"
    assert Path(decided.paths["d1"]).name == "c.json"
    assert Path(decided.paths["d1"]).read_text() == "d1"


def test_the_same_data_is_brought_once(store: Store, space: Workspace) -> None:
    decided = inputs.plan([a_ref("d0"), a_ref("d1", digest="d0")], space, private_mounts=False)

    assert decided.paths["d0"] == decided.paths["d1"]
    assert len(decided.downloads) == 1


def test_in_a_container_a_volume_is_downloaded_straight_to_its_path(
    store: Store, space: Workspace, tmp_path: Path
) -> None:
    decided = inputs.plan([a_ref(mount=f"{tmp_path}/data/in")], space, private_mounts=False)
    inputs.provide(decided, store, download)

    assert decided.binds == {}
    assert (tmp_path / "data" / "in" / "sub" / "x").read_text() == "d0"


def test_private_volumes_fill_what_is_mounted_already(store: Store, space: Workspace) -> None:
    refs = [a_ref("d0", mount="/data"), a_ref("d1", mount="/conf", is_dir=False, name="c.json")]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)
    inodes = {path: behind.stat().st_ino for path, behind in decided.binds.items()}

    inputs.provide(decided, store, download)

    assert dict(decided.paths) == {"d0": "/data", "d1": "/conf/c.json"}
    assert {path: behind.stat().st_ino for path, behind in decided.binds.items()} == inodes
    assert (decided.binds["/data"] / "sub" / "x").read_text() == "d0"
    assert (decided.binds["/conf"] / "c.json").read_text() == "d1"


def test_data_sets_and_buckets_named_twice_are_brought_once(space: Workspace) -> None:
    bucket = {"kind": "gcs", "source": "gs://b/set/", "digest": None}
    hub = {"kind": "hf", "source": "hf://set", "digest": None}
    refs = [
        a_ref("d0", **bucket),
        a_ref("d1", **bucket),
        a_ref("d2", **hub),
        a_ref("d3", **hub),
        a_ref("d4", **{**bucket, "source": "gs://b/other/set/"}),
        a_ref("d5", **hub, trust_remote_code=True),
    ]

    decided = inputs.plan(refs, space, private_mounts=False)

    assert [one.ref.key for one in decided.downloads] == ["d0", "d2", "d4", "d5"]
    assert decided.paths["d1"] == decided.paths["d0"] != decided.paths["d4"]


def test_what_is_shown_in_place_is_neither_downloaded_nor_looked_into(
    store: Store, space: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "one.bin").touch()
    folder = {"fuse": True, "digest": None, "local_path": str(tmp_path)}
    file = {**folder, "local_path": str(tmp_path / "one.bin"), "is_dir": False, "name": "one.bin"}
    refs = [
        a_ref("d0", **folder),
        a_ref("d1", **file),
        a_ref("d2", **folder, mount="/data"),
        a_ref("d3", **file, mount="/weights"),
        a_ref("d4", **folder),
    ]

    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)
    inputs.provide(decided, store, download)

    assert decided.downloads == ()
    assert (decided.paths["d2"], decided.paths["d3"]) == ("/data", "/weights/one.bin")
    assert decided.paths["d4"] == decided.paths["d0"]
    shown = {path: str(source) for path, source in decided.binds.items()}
    assert shown[decided.paths["d0"]] == shown[shown["/data"]] == str(tmp_path)
    assert shown[decided.paths["d1"]] == str(tmp_path / "one.bin")
    assert shown[f"{shown['/weights']}/one.bin"] == str(tmp_path / "one.bin")
    assert list(shown)[-2:] == ["/data", "/weights"], "volumes last: they may cover the others"
    assert {path for path in shown if path not in decided.read_only} == set()
    assert Path(decided.paths["d0"]).is_dir()
    assert Path(decided.paths["d1"]).is_file()


def test_what_is_shown_in_place_must_still_be_there(space: Workspace, tmp_path: Path) -> None:
    ref = a_ref(fuse=True, digest=None, local_path=str(tmp_path / "gone"))

    with pytest.raises(DataError, match=f"{tmp_path}/gone does not exist any more"):
        inputs.make_mount_points(inputs.plan([ref], space, private_mounts=False))


def test_what_somebody_mounted_for_us_is_used_where_it_is(
    store: Store, space: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "one.bin").touch()
    folder = a_ref("d0", fuse=True, mount=str(tmp_path))
    file = a_ref("d1", fuse=True, mount=str(tmp_path), is_dir=False, name="one.bin")

    decided = inputs.plan([folder, file], space, private_mounts=False)
    inputs.provide(decided, store, download)

    assert dict(decided.paths) == {"d0": str(tmp_path), "d1": f"{tmp_path}/one.bin"}
    assert decided.downloads == ()


def test_what_nobody_mounted_is_missed_by_name(store: Store, space: Workspace) -> None:
    decided = inputs.plan(
        [a_ref("d7", kind="gcs", source="gs://b/set/", fuse=True)], space, private_mounts=False
    )

    with pytest.raises(DataError, match=r"'gs://b/set/' should be mounted at /kinetic/data/d7"):
        inputs.provide(decided, store, download)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left on the disk"),
        (IntegrityError("sub/x is not what was uploaded"), "not what was uploaded"),
    ],
)
@pytest.mark.parametrize("others", [0, 3])
def test_a_failure_names_the_data_and_its_path(
    store: Store, space: Workspace, failure: Exception, words: str, others: int
) -> None:
    def failing(store: Store, ref: DataRef, path: Path, *, track: TrackProgress) -> None:
        if ref.key == "d0":
            raise failure
        download(store, ref, path)

    refs = [a_ref("d0", mount="/data"), *(a_ref(f"d{n + 1}") for n in range(others))]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)

    with pytest.raises(DataError, match=words) as raised:
        inputs.provide(decided, store, failing)

    assert "'./d0' could not be downloaded to /data" in str(raised.value)


def test_several_items_are_brought_at_a_time(store: Store, space: Workspace) -> None:
    together = threading.Barrier(3, timeout=300)

    def waits(store: Store, ref: DataRef, path: Path, *, track: TrackProgress) -> None:
        together.wait()

    decided = inputs.plan([a_ref(f"d{n}") for n in range(3)], space, private_mounts=False)
    inputs.provide(decided, store, waits)


def test_after_a_failure_nobody_waits_for_the_other_items(store: Store, space: Workspace) -> None:
    never = threading.Event()

    def one_hangs(store: Store, ref: DataRef, path: Path, *, track: TrackProgress) -> None:
        if ref.key == "d1":
            raise IntegrityError("broken")
        never.wait(60)

    decided = inputs.plan([a_ref("d0"), a_ref("d1")], space, private_mounts=False)

    with pytest.raises(DataError, match="broken"):
        inputs.provide(decided, store, one_hangs)
    never.set()


def test_what_is_said_of_the_data_is_not_said_twice(store: Store, space: Workspace) -> None:
    def failing(store: Store, ref: DataRef, path: Path, *, track: TrackProgress) -> None:
        raise DataError(f"The data {ref.source!r} is not in the store any more.")

    decided = inputs.plan([a_ref("d0", mount="/data")], space, private_mounts=False)

    with pytest.raises(DataError) as raised:
        inputs.provide(decided, store, failing)

    assert raised.value.message == (
        "The data './d0' could not be downloaded to /data: it is not in the store any more."
    )
