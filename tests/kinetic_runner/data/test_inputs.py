import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.data.references import DataRef
from kinetic_payload.errors import DataError, IntegrityError
from kinetic_payload.progress import TrackProgress
from kinetic_payload.testing import MemoryStore
from kinetic_runner.data import inputs
from kinetic_runner.workspace import Workspace

STORE = MemoryStore()
BUCKET = {"kind": "gcs", "source": "gs://b/set/", "digest": None}
HUB = {"kind": "hf", "source": "hf://set", "digest": None}


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w")


def a_ref(key: str = "d0", **changes: Any) -> DataRef:
    values = {"kind": "local", "source": f"./{key}", "is_dir": True, "name": "set", "digest": key}
    return DataRef(key=key, **{**values, **changes})


def a_file(key: str = "d1", **changes: Any) -> DataRef:
    return a_ref(key, is_dir=False, name="c.json", **changes)


def download(store: Any, ref: DataRef, path: Path, track: TrackProgress) -> None:
    if ref.is_dir:
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "x").write_text(ref.key)
    else:
        path.write_text(ref.key)


def downloading(action: Callable[[str], object]) -> Any:
    """Return a download that calls *action* with the key of the data."""

    def download(_store: Any, ref: DataRef, _path: Path, track: TrackProgress) -> None:
        action(ref.key)

    return download


def test_folders_and_files_keep_their_names(space: Workspace) -> None:
    decided = inputs.plan([a_ref(), a_file()], space, private_mounts=False)
    inputs.provide(decided, STORE, download=download)

    folder, file = Path(decided.paths["d0"]), Path(decided.paths["d1"])
    assert (folder.name, (folder / "sub" / "x").read_text()) == ("set", "d0")
    assert (file.name, file.read_text()) == ("c.json", "d1")


def test_in_a_container_a_volume_is_downloaded_straight_to_its_path(
    space: Workspace, tmp_path: Path
) -> None:
    decided = inputs.plan([a_ref(mount=f"{tmp_path}/data/in")], space, private_mounts=False)
    inputs.provide(decided, STORE, download=download)

    assert decided.binds == {}
    assert (tmp_path / "data" / "in" / "sub" / "x").read_text() == "d0"


def test_private_volumes_fill_the_folders_that_are_mounted_already(space: Workspace) -> None:
    refs = [a_ref(mount="/data"), a_file(mount="/conf")]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)
    inodes = {path: behind.stat().st_ino for path, behind in decided.binds.items()}

    inputs.provide(decided, STORE, download=download)

    assert dict(decided.paths) == {"d0": "/data", "d1": "/conf/c.json"}
    assert {path: behind.stat().st_ino for path, behind in decided.binds.items()} == inodes
    assert (decided.binds["/data"] / "sub" / "x").read_text() == "d0"
    assert (decided.binds["/conf"] / "c.json").read_text() == "d1"


def test_the_same_data_is_downloaded_once(space: Workspace) -> None:
    refs = [
        a_ref("d0"),
        a_ref("d1", digest="d0"),
        a_ref("d2", **BUCKET),
        a_ref("d3", **BUCKET),
        a_ref("d4", **{**BUCKET, "source": "gs://b/other/set/"}),
        a_ref("d5", **HUB),
        a_ref("d6", **HUB),
        a_ref("d7", **HUB, trust_remote_code=True),
    ]

    decided = inputs.plan(refs, space, private_mounts=False)

    assert [one.ref.key for one in decided.downloads] == ["d0", "d2", "d4", "d5", "d7"]
    assert decided.paths["d0"] == decided.paths["d1"]
    assert decided.paths["d3"] == decided.paths["d2"] != decided.paths["d4"]


def test_data_shown_in_place_is_neither_downloaded_nor_looked_into(
    space: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "c.json").touch()
    folder = {"fuse": True, "digest": None, "local_path": str(tmp_path)}
    file = {**folder, "local_path": str(tmp_path / "c.json")}
    refs = [
        a_ref("d0", **folder),
        a_file("d1", **file),
        a_ref("d2", **folder, mount="/data"),
        a_file("d3", **file, mount="/weights"),
        a_ref("d4", **folder),
    ]

    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)
    inputs.provide(decided, STORE, download=download)

    assert decided.downloads == ()
    assert (decided.paths["d2"], decided.paths["d3"]) == ("/data", "/weights/c.json")
    assert decided.paths["d4"] == decided.paths["d0"]
    shown = {path: str(source) for path, source in decided.binds.items()}
    assert shown[decided.paths["d0"]] == shown[shown["/data"]] == str(tmp_path)
    assert shown[decided.paths["d1"]] == str(tmp_path / "c.json")
    assert shown[f"{shown['/weights']}/c.json"] == str(tmp_path / "c.json")
    assert list(shown)[-2:] == ["/data", "/weights"], "volumes last: they may cover the others"
    assert {path for path in shown if path not in decided.read_only} == set()
    assert Path(decided.paths["d0"]).is_dir()
    assert Path(decided.paths["d1"]).is_file()


def test_data_mounted_before_the_start_is_used_where_it_is(
    space: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "c.json").touch()
    refs = [a_ref(fuse=True, mount=str(tmp_path)), a_file(fuse=True, mount=str(tmp_path))]

    decided = inputs.plan(refs, space, private_mounts=False)
    inputs.provide(decided, STORE, download=download)

    assert dict(decided.paths) == {"d0": str(tmp_path), "d1": f"{tmp_path}/c.json"}
    assert decided.downloads == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": None, "local_path": "/nothing/gone"}, "/nothing/gone does not exist any more"),
        (BUCKET, "'gs://b/set/' should be mounted at /kinetic/data/d0"),
    ],
)
def test_data_that_should_be_there_and_is_not_is_named(
    space: Workspace, changes: dict[str, Any], words: str
) -> None:
    decided = inputs.plan([a_ref(fuse=True, **changes)], space, private_mounts=False)

    def begin() -> None:
        inputs.make_mount_points(decided)
        inputs.provide(decided, STORE, download=download)

    with pytest.raises(DataError, match=words):
        begin()


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left on the disk"),
        (IntegrityError("sub/x is not what was uploaded"), "sub/x is not what was uploaded"),
        # The data is named once.
        (DataError("The data './d0' is not in the store any more."), "it is not in the store any"),
    ],
)
@pytest.mark.parametrize("others", [0, 3])
def test_a_failure_names_the_data_and_its_path(
    space: Workspace, failure: Exception, words: str, others: int
) -> None:
    def fail(key: str) -> None:
        if key == "d0":
            raise failure

    refs = [a_ref(mount="/data"), *(a_ref(f"d{n + 1}") for n in range(others))]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)

    with pytest.raises(
        DataError, match=f"^The data './d0' could not be downloaded to /data: {words}"
    ):
        inputs.provide(decided, STORE, download=downloading(fail))


def test_several_items_are_downloaded_at_a_time(space: Workspace) -> None:
    together = threading.Barrier(3, timeout=300)
    decided = inputs.plan([a_ref(f"d{n}") for n in range(3)], space, private_mounts=False)

    inputs.provide(decided, STORE, download=downloading(lambda _: together.wait()))


def test_a_failure_is_raised_without_waiting_for_the_other_items(space: Workspace) -> None:
    never = threading.Event()

    def one_hangs(key: str) -> None:
        if key == "d1":
            raise IntegrityError("broken")
        never.wait(60)

    decided = inputs.plan([a_ref("d0"), a_ref("d1")], space, private_mounts=False)

    with pytest.raises(DataError, match="broken"):
        inputs.provide(decided, STORE, download=downloading(one_hangs))
    never.set()
