"""Data of local jobs that is not copied from this machine's files: buckets, and views of folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.stores import open_store
from kinetic_payload.stores.store import Location
from kinetic_runner.data.mounts import why_not_private, why_not_read_only
from kinetic_servers.gcs import GcsServer

volumes = pytest.mark.skipif(why_not_private() is not None, reason="no private mounts here")
views = pytest.mark.skipif(why_not_read_only() is not None, reason="no views here")


@volumes
def test_folders_and_objects_of_a_bucket_are_provided_in_arguments_and_as_volumes(
    project: Any, bucket: GcsServer
) -> None:
    bucket.create_bucket("sets")
    sets = open_store(Location("gs", "sets"))
    for name in ("digits/train/1", "digits/train/2", "digits/test/3", "models/weights.h5"):
        sets.write(name, name.encode())
    name = f"/kinetic-test-{os.getpid()}"

    project.copy("config_of_buckets.py")

    printed = project.output("config_of_buckets.py", name)

    assert json.loads(printed) == {
        "train": ["1", "2"],
        "once": True,
        "weights": ["weights.h5", "models/weights.h5"],
        "volumes": [["3"], ["weights.h5"]],
    }
    # Named four times, of which two are one: nothing of it was uploaded, and that one came once.
    assert not (project.home / "store" / "data").exists()
    assert bucket.requests.count(operation="objects.get.media", name="digits/train/1") == 1


@views
def test_a_folder_of_any_size_is_shown_read_only_in_place_and_not_copied(
    project: Any,
) -> None:
    project.write("big/sub/x", "hello")
    size = 1 << 40
    with (project.root / "big" / "one.bin").open("wb") as stream:
        try:
            stream.truncate(size)
        except OSError:
            size = 1 << 33
            stream.truncate(size)
    project.copy("shown.py")

    done = project.run("shown.py", f"kinetic-test-{os.getpid()}")

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    where = Path(seen.pop("where"))
    assert seen == {
        "seen": ["one.bin", "sub"],
        "size": size,
        "start": "hello",
        "name": "one.bin",
        "volume": [["one.bin"], size],
        "refused": ["EROFS"] * 5,
    }
    assert not (project.home / "store" / "data").exists()
    # The view is gone with the job, the folder is not.
    assert not where.exists()
    assert not Path(f"/kinetic-test-{os.getpid()}").exists()
    assert sorted(os.listdir(project.root / "big")) == ["one.bin", "sub"]
    assert (project.root / "big" / "sub" / "x").read_text() == "hello"
