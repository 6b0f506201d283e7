"""Data of local jobs that is not copied out of this machine's files: buckets, and views of what lies here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from kinetic_payload.testing.gcs import GcsServer
from kinetic_runner.data.mounts import why_not_private, why_not_read_only

volumes = pytest.mark.skipif(why_not_private() is not None, reason="no private mounts here")
views = pytest.mark.skipif(why_not_read_only() is not None, reason="no views here")


@pytest.fixture
def sets(project: Any) -> Iterator[GcsServer]:
    """Serve a bucket of somebody else's; jobs are kept in a folder."""
    with GcsServer() as server:
        server.create_bucket("sets")
        yield server


def put(server: GcsServer, name: str, data: bytes) -> None:
    url = (
        f"{server.endpoint}/upload/storage/v1/b/sets/o?uploadType=media&name={quote(name, safe='')}"
    )
    urlopen(Request(url, data=data, method="POST")).close()


@volumes
def test_folders_and_objects_of_a_bucket_arrive_anywhere_in_the_arguments_and_at_paths(
    project: Any, sets: GcsServer
) -> None:
    for name in ("digits/train/1", "digits/train/2", "digits/test/3", "models/weights.h5"):
        put(sets, name, name.encode())
    name = f"/kinetic-test-{os.getpid()}"

    project.copy("config_of_buckets.py")

    printed = project.output("config_of_buckets.py", name, **sets.environment)

    assert json.loads(printed) == {
        "train": ["1", "2"],
        "once": True,
        "weights": ["weights.h5", "models/weights.h5"],
        "volumes": [["3"], ["weights.h5"]],
    }
    # Named four times, of which two are one: nothing of it was uploaded, and that one came once.
    assert not (project.home / "store" / "data").exists()
    assert sets.requests.count(operation="objects.get.media", name="digits/train/1") == 1


def test_what_is_missing_in_a_bucket_is_refused_before_anything_is_made(
    project: Any, sets: GcsServer
) -> None:
    put(sets, "digits/1", b"1")
    project.write(
        "main.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work(path): ...

        if __name__ == "__main__":
            work(kinetic.Data("gs://sets/digits"))
        """,
    )

    done = project.run("main.py", **sets.environment)

    assert done.returncode == 1
    assert "gs://sets/digits is not an object, but there is a folder of that name" in done.stderr
    assert "For the folder write gs://sets/digits/" in done.stderr
    assert not list((project.home / "store").glob("*/handle.json"))


def test_what_vanishes_before_the_job_looks_is_an_outcome_of_the_phase_data(
    project: Any, sets: GcsServer
) -> None:
    put(sets, "digits/1", b"1")
    put(sets, "digits/2", b"2")
    sets.faults.add(operation="objects.get.media", name="digits/2", status=404)

    printed = project.script(
        """
        import json
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work(path): ...

        if __name__ == "__main__":
            job = work.run_async(kinetic.Data("gs://sets/digits/"))
            try:
                job.result()
            except Exception as error:
                print(json.dumps([type(error).__name__, str(error)]))
        """,
        **sets.environment,
    )

    kind, message = json.loads(printed)
    assert kind == "JobFailedError"
    assert "Kinetic could not provide the call's data: The data 'gs://sets/digits/'" in message
    assert "gs://sets/digits/2 disappeared while it was being downloaded." in message


@views
def test_a_folder_of_any_size_is_shown_where_it_lies_and_nothing_of_it_is_read_or_copied(
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
    # It is gone with the job, and what was shown is not.
    assert not where.exists()
    assert not Path(f"/kinetic-test-{os.getpid()}").exists()
    assert sorted(os.listdir(project.root / "big")) == ["one.bin", "sub"]
    assert (project.root / "big" / "sub" / "x").read_text() == "hello"


def test_a_bucket_is_not_mounted_here_and_the_advice_comes_before_any_work(project: Any) -> None:
    project.write(
        "main.py",
        """
        import kinetic

        @kinetic.run(accelerator="cpu", volumes={"/data": kinetic.Data("gs://sets/a/", fuse=True)})
        def work(): ...

        if __name__ == "__main__":
            work()
        """,
    )

    done = project.run("main.py")

    assert done.returncode == 1
    assert "A local job cannot mount a bucket" in done.stderr
    assert "Leave fuse=True out" in done.stderr
