"""Data in buckets of other projects, read with the real client out of a strict server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from kinetic_payload.data.bucket import bucket_tree, download, look, open_bucket
from kinetic_payload.data.sources import GcsSource
from kinetic_payload.errors import CredentialsError, DataError, StorePermissionError
from kinetic_payload.progress import Advance
from kinetic_payload.stores.gcs import BucketObject
from kinetic_servers.gcs import EVERYONE, GcsServer, Tokens


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    with GcsServer() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        running.create_bucket("sets")
        yield running


def put(server: GcsServer, name: str, data: bytes = b"", bucket: str = "sets") -> None:
    url = f"{server.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
    urlopen(Request(url, data=data, method="POST")).close()


def bring(source: GcsSource, dest: Path) -> None:
    download(open_bucket(source), source, dest)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return what lies below *folder*; a folder is None."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def test_a_single_object_becomes_a_file(server: GcsServer, tmp_path: Path) -> None:
    put(server, "a/weights.h5", b"w" * 1000)
    put(server, "a/weights.h5.old", b"other")

    bring(GcsSource("sets", "a/weights.h5"), tmp_path / "in" / "weights.h5")

    assert tree(tmp_path) == {"in": None, "in/weights.h5": b"w" * 1000}
    (tmp_path / "new").touch()
    arrived, new = (tmp_path / name for name in ("in/weights.h5", "new"))
    assert arrived.stat().st_mode == new.stat().st_mode


def test_a_prefix_becomes_a_folder_with_the_same_paths(server: GcsServer, tmp_path: Path) -> None:
    odd = ["ümlaut ☃.txt", "a b", "new\x0bline", "%2F", "*?[x]", "-", "x" * 255, "😀" * 63]
    for name in ["1", "sub/2", "sub/deep/3", *odd]:
        put(server, f"imgs/{name}", name.encode())
    put(server, "imgs/", b"")
    put(server, "imgs/empty/", b"")
    put(server, "imgs/sub/", b"")
    put(server, "imgs-other/no", b"no")

    totals: list[tuple[str, int | None]] = []
    done: list[int] = []

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        totals.append((doing, total))
        yield done.append

    source = GcsSource("sets", "imgs/")
    download(open_bucket(source), source, tmp_path / "imgs", track=track)

    assert totals == [("downloading data", sum(done))]
    assert tree(tmp_path / "imgs") == {
        "1": b"1",
        "empty": None,
        "sub": None,
        "sub/2": b"sub/2",
        "sub/deep": None,
        "sub/deep/3": b"sub/deep/3",
        **{name: name.encode() for name in odd},
    }
    assert sorted(os.listdir(tmp_path)) == ["imgs"]


def test_a_whole_bucket_and_a_placeholder_alone_are_folders(
    server: GcsServer, tmp_path: Path
) -> None:
    put(server, "x/y", b"1")
    put(server, "bare/")

    bring(GcsSource("sets", ""), tmp_path / "all")
    bring(GcsSource("sets", "bare/"), tmp_path / "bare")

    assert tree(tmp_path / "all") == {"bare": None, "x": None, "x/y": b"1"}
    assert tree(tmp_path / "bare") == {}


def test_a_folder_of_two_pages_comes_several_objects_at_a_time(
    server: GcsServer, tmp_path: Path
) -> None:
    source = GcsSource("sets", "many/")
    names = [f"{n % 7}/{n:04d}" for n in range(1000)] + ["weights.h5"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: put(server, f"many/{name}"), names))
    started, together = count(), threading.Barrier(5, timeout=60)
    bucket = open_bucket(source)

    class Counting:
        stat, entries, list = bucket.stat, bucket.entries, bucket.list

        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            if next(started) < 5:
                together.wait()  # Five downloads are under way now.
            path.write_text(name)

    download(Counting(), source, tmp_path / "many")

    found = {name: data for name, data in tree(tmp_path / "many").items() if data is not None}
    assert found == {name: f"many/{name}".encode() for name in names}
    assert server.requests.count(operation="objects.list") == 2
    # It is the name nearest to a wrong one, although it is on the second page.
    with pytest.raises(DataError) as raised:
        look(open_bucket(source), GcsSource("sets", "many/weigths.h5"))
    assert raised.value.hint == "Did you mean gs://sets/many/weights.h5?"


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({"../../etc/passwd": 4}, "it contains '..'"),
        ({"./x": 4}, "it contains '.' or an empty part"),
        ({"a//b": 4}, "it contains '.' or an empty part"),
        ({"/etc/passwd": 4}, "it is absolute"),
        ({"x" * 256: 4}, "longer than 255 bytes"),
        ({"é" * 128: 4}, "longer than 255 bytes"),
        ({"nul\0": 4}, r"gs://sets/set/nul\\x00 cannot be .* NUL"),
        ({"../": 0}, "it contains '..'"),
        ({"a": 1, "a.b": 1, "a/b": 1}, "gs://sets/set/a cannot be .* other objects lie below it"),
        ({"a/": 7}, "gs://sets/set/a/ cannot be .* but it has contents"),
    ],
)
def test_objects_that_cannot_be_files_are_refused(objects: dict[str, int], message: str) -> None:
    found = [BucketObject(f"set/{name}", size, 1, 0.0) for name, size in objects.items()]

    with pytest.raises(DataError, match=message):
        bucket_tree(GcsSource("sets", "set/"), found)


@pytest.mark.parametrize(
    ("fault", "message"),
    [("a name", "gs://sets/set/../x cannot be"), ("a deletion", "gs://sets/set/7 disappeared")],
)
def test_an_object_that_cannot_be_downloaded_is_named_and_nothing_appears(
    server: GcsServer, tmp_path: Path, fault: str, message: str
) -> None:
    for n in range(10):
        put(server, f"set/{n}", b"x")
    if fault == "a name":
        put(server, "set/../x", b"evil")
    else:
        server.faults.add(operation="objects.get.media", name="set/7", status=404)

    with pytest.raises(DataError, match=message):
        bring(GcsSource("sets", "set/"), tmp_path / "set")

    assert os.listdir(tmp_path) == []


THERE = ("weights.h5", "models/weights.h5", "digits/train/1", "digits/test/1")


@pytest.mark.parametrize("name", ["", "weights.h5", "digits/"])
def test_objects_and_folders_that_exist_are_found(server: GcsServer, name: str) -> None:
    for there in THERE:
        put(server, there, b"1")
    source = GcsSource("sets", name)

    look(open_bucket(source), source)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("wheights.h5", "gs://sets/wheights.h5 does not exist.", "Did you mean gs://sets/weights.h5?"),
        ("models/wights.h5", "does not exist", "Did you mean gs://sets/models/weights.h5?"),
        ("digts/", "nothing lies below it", "Did you mean gs://sets/digits/?"),
        ("digits/trian/", "nothing lies below it", "Did you mean gs://sets/digits/train/?"),
        ("weights.h5/", "an object of that name does", "rite gs://sets/weights.h5"),
        ("digits", "there is a folder of that name", "rite gs://sets/digits/"),
        ("nowhere/at/all", "does not exist", "Nothing lies in gs://sets/nowhere/at/ either"),
        ("zzz", "does not exist", "upper and lower case differ"),
        ("empty:", "the bucket is empty", ""),
        ("steps:", "There is no bucket 'steps'", ""),
        ("steps:x", "There is no bucket 'steps'", ""),
    ],
)  # fmt: skip
def test_a_missing_name_is_reported_with_names_near_it(
    server: GcsServer, name: str, message: str, hint: str
) -> None:
    server.create_bucket("empty")
    for there in THERE:
        put(server, there, b"1")
    bucket, _, path = name.rpartition(":")
    source = GcsSource(bucket or "sets", path)

    with pytest.raises(DataError) as raised:
        look(open_bucket(source), source)

    assert message in raised.value.message
    assert hint in (raised.value.hint or "")
    assert "buckets create" not in str(raised.value)


@pytest.fixture
def without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GcsServer]:
    """Serve a bucket as Google does, to a machine that has no credentials at all."""
    with GcsServer(tokens=Tokens()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        running.create_bucket("sets")
        running.allow("sets", {EVERYONE: ["storage.objects.create"]})
        put(running, "set/x", b"public")
        yield running


def test_an_object_is_found_where_listing_is_not_allowed(without_credentials: GcsServer) -> None:
    without_credentials.allow("sets", {EVERYONE: ["storage.objects.get"]})
    source = GcsSource("sets", "set/x")
    look(open_bucket(source), source)

    source = GcsSource("sets", "set/")
    with pytest.raises((StorePermissionError, CredentialsError)):
        look(open_bucket(source), source)


def test_the_hint_for_a_private_bucket_is_to_log_in(without_credentials: GcsServer) -> None:
    without_credentials.allow("sets", {})
    source = GcsSource("sets", "set/x")

    with pytest.raises((StorePermissionError, CredentialsError)) as raised:
        look(open_bucket(source), source)

    assert "gcloud auth application-default login" in (raised.value.hint or "")
