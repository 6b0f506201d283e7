import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.errors import DataError, IntegrityError
from kinetic_payload.references import DataRef
from kinetic_payload.store import Store, parse_location
from kinetic_payload.stores import open_store
from kinetic_runner import inputs
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


def download(store: Store, ref: DataRef, path: Path) -> None:
    if ref.is_dir:
        (path / "sub").mkdir(parents=True)
        (path / "sub" / "x").write_text(ref.key)
    else:
        path.write_text(ref.key)


def test_folders_and_files_keep_their_names(store: Store, space: Workspace) -> None:
    decided = inputs.plan(
        [a_ref("d0"), a_ref("d1", is_dir=False, name="c.json")], space, private_mounts=False
    )
    inputs.bring(decided, store, download)

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
    inputs.bring(decided, store, download)

    assert decided.binds == {}
    assert (tmp_path / "data" / "in" / "sub" / "x").read_text() == "d0"


def test_private_volumes_fill_what_is_mounted_already(store: Store, space: Workspace) -> None:
    refs = [a_ref("d0", mount="/data"), a_ref("d1", mount="/conf", is_dir=False, name="c.json")]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)
    inodes = {path: behind.stat().st_ino for path, behind in decided.binds.items()}

    inputs.bring(decided, store, download)

    assert dict(decided.paths) == {"d0": "/data", "d1": "/conf/c.json"}
    assert {path: behind.stat().st_ino for path, behind in decided.binds.items()} == inodes
    assert (decided.binds["/data"] / "sub" / "x").read_text() == "d0"
    assert (decided.binds["/conf"] / "c.json").read_text() == "d1"


@pytest.mark.parametrize("changes", [{"kind": "gcs"}, {"kind": "hf"}, {"fuse": True}])
def test_what_this_runner_cannot_serve_is_refused_by_name(
    space: Workspace, changes: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match=r"'\./d0' .* cannot be served by this runner yet"):
        inputs.plan([a_ref(**changes)], space, private_mounts=False)


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
    def failing(store: Store, ref: DataRef, path: Path) -> None:
        if ref.key == "d0":
            raise failure
        download(store, ref, path)

    refs = [a_ref("d0", mount="/data"), *(a_ref(f"d{n + 1}") for n in range(others))]
    decided = inputs.plan(refs, space, private_mounts=True)
    inputs.make_mount_points(decided)

    with pytest.raises(DataError, match=words) as raised:
        inputs.bring(decided, store, failing)

    assert "'./d0' could not be brought to /data" in str(raised.value)


def test_several_items_are_brought_at_a_time(store: Store, space: Workspace) -> None:
    together = threading.Barrier(3, timeout=10)

    def waits(store: Store, ref: DataRef, path: Path) -> None:
        together.wait()

    decided = inputs.plan([a_ref(f"d{n}") for n in range(3)], space, private_mounts=False)
    inputs.bring(decided, store, waits)
