"""Data in other people's buckets, read with the real client out of a strict server."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
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
from kinetic_payload.testing.gcs import EVERYONE, GcsServer, Tokens


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

    bring(GcsSource("sets", "imgs/"), tmp_path / "imgs")

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


def test_many_objects_come_at_once_in_pages(server: GcsServer, tmp_path: Path) -> None:
    source = GcsSource("sets", "many/")
    names = [f"{n % 7}/{n:04d}" for n in range(1203)]
    for name in names:
        put(server, f"many/{name}", name.encode())
    begun, together = count(), threading.Barrier(5, timeout=60)
    bucket = open_bucket(source)

    class Counting:
        stat, entries, list = bucket.stat, bucket.entries, bucket.list

        def download(self, name: str, path: Path, *, progress: Advance | None = None) -> None:
            if next(begun) < 5:
                together.wait()  # All of them are under way now.
            bucket.download(name, path, progress=progress)

    download(Counting(), source, tmp_path / "many")

    found = {name: data for name, data in tree(tmp_path / "many").items() if data is not None}
    assert found == {name: name.encode() for name in names}
    assert server.requests.count(operation="objects.list") == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("set/../../etc/passwd", "it has a part '..'"),
        ("set/./x", "it has a part '.'"),
        ("set/a//b", "two slashes in a row"),
        ("set//etc/passwd", "begins with one"),
        ("set/" + "x" * 256, "longer than 255 bytes"),
        ("set/" + "é" * 128, "longer than 255 bytes"),
        ("set/nul\0", "NUL"),
        ("set/..", "it has a part '..'"),
        ("set/../", "it has a part '..'"),
    ],
)
def test_names_that_are_no_paths_are_refused_by_name_and_nothing_appears(
    server: GcsServer, tmp_path: Path, name: str, words: str
) -> None:
    put(server, "set/fine", b"1")
    put(server, name, b"evil" * (not name.endswith("/")))

    with pytest.raises(DataError, match=words) as raised:
        bring(GcsSource("sets", "set/"), tmp_path / "set")

    assert (
        f"gs://sets/{name.encode('unicode_escape').decode() if not name.isprintable() else name}"
        in (raised.value.message)
    )
    assert os.listdir(tmp_path) == []


def test_an_object_inside_another_object_is_refused() -> None:
    found = [BucketObject(name, 1, 1, 0.0) for name in ("set/a", "set/a.b", "set/a/b")]

    with pytest.raises(DataError, match=r"gs://sets/set/a cannot be .* other objects lie below it"):
        bucket_tree(GcsSource("sets", "set/"), found)


def test_a_placeholder_with_contents_is_not_dropped_silently() -> None:
    with pytest.raises(DataError, match=r"gs://sets/set/a/ cannot be .* but it has contents"):
        bucket_tree(GcsSource("sets", "set/"), [BucketObject("set/a/", 7, 1, 0.0)])


def test_an_object_that_vanishes_meanwhile_is_named_and_nothing_appears(
    server: GcsServer, tmp_path: Path
) -> None:
    for n in range(40):
        put(server, f"set/{n}", b"x")
    server.faults.add(operation="objects.get.media", name="set/7", status=404)

    with pytest.raises(DataError, match="gs://sets/set/7 disappeared"):
        bring(GcsSource("sets", "set/"), tmp_path / "set")

    assert os.listdir(tmp_path) == []


def test_progress_knows_the_whole_from_the_list(server: GcsServer, tmp_path: Path) -> None:
    from contextlib import contextmanager

    for n in range(3):
        put(server, f"set/{n}", b"x" * 1000)
    told: list[tuple[str, int | None]] = []
    done: list[int] = []

    @contextmanager
    def track(doing: str, total: int | None) -> Iterator[Advance]:
        told.append((doing, total))
        yield done.append

    source = GcsSource("sets", "set/")
    download(open_bucket(source), source, tmp_path / "set", track=track)

    assert told == [("downloading data", 3000)]
    assert sum(done) == 3000


@pytest.mark.parametrize("name", ["there.h5", "set/", ""])
def test_what_is_there_passes_the_look(server: GcsServer, name: str) -> None:
    put(server, "there.h5", b"1")
    put(server, "set/x", b"1")
    source = GcsSource("sets", name)

    look(open_bucket(source), source)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "wheights.h5",
            ("gs://sets/wheights.h5 does not exist.", "Did you mean gs://sets/weights.h5?"),
        ),
        ("models/wights.h5", ("does not exist", "Did you mean gs://sets/models/weights.h5?")),
        ("digts/", ("nothing lies below it", "Did you mean gs://sets/digits/?")),
        ("digits/trian/", ("nothing lies below it", "Did you mean gs://sets/digits/train/?")),
        ("weights.h5/", ("an object of that name does", "write gs://sets/weights.h5")),
        ("digits", ("there is a folder of that name", "write gs://sets/digits/")),
        ("nowhere/at/all", ("does not exist", "Nothing lies in gs://sets/nowhere/at/ either")),
        ("zzz", ("does not exist", "upper and lower case differ")),
    ],
)
def test_what_is_missing_is_told_with_what_comes_near(
    server: GcsServer, name: str, said: tuple[str, str]
) -> None:
    for there in ("weights.h5", "models/weights.h5", "digits/train/1", "digits/test/1"):
        put(server, there, b"1")
    source = GcsSource("sets", name)

    with pytest.raises(DataError) as raised:
        look(open_bucket(source), source)

    assert said[0] in raised.value.message
    assert said[1] in (raised.value.hint or "").replace("Write", "write")


def test_near_names_are_found_in_a_folder_of_thousands(server: GcsServer) -> None:
    for n in range(1100):
        put(server, f"set/{n:05d}", b"")
    put(server, "set/weights.h5", b"1")
    source = GcsSource("sets", "set/weigths.h5")

    with pytest.raises(DataError) as raised:
        look(open_bucket(source), source)

    assert raised.value.hint == "Did you mean gs://sets/set/weights.h5?"


def test_an_empty_bucket_and_a_missing_one_are_told_apart(server: GcsServer) -> None:
    for source, words in [
        (GcsSource("sets", ""), "the bucket is empty"),
        (GcsSource("steps", ""), "There is no bucket 'steps'"),
        (GcsSource("steps", "x"), "There is no bucket 'steps'"),
    ]:
        with pytest.raises(DataError, match=words) as raised:
            look(open_bucket(source), source)
        assert "create it first" not in str(raised.value)


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


def test_a_public_bucket_needs_no_credentials(
    without_credentials: GcsServer, tmp_path: Path
) -> None:
    without_credentials.allow("sets", {EVERYONE: ["storage.objects.get", "storage.objects.list"]})
    source = GcsSource("sets", "set/")

    look(open_bucket(source), source)
    bring(source, tmp_path / "set")

    assert tree(tmp_path / "set") == {"x": b"public"}


def test_where_listing_is_not_allowed_a_missing_object_is_missing_without_near_names(
    without_credentials: GcsServer,
) -> None:
    without_credentials.allow("sets", {EVERYONE: ["storage.objects.get"]})
    source = GcsSource("sets", "set/x")
    look(open_bucket(source), source)

    source = GcsSource("sets", "set/")
    with pytest.raises((StorePermissionError, CredentialsError)):
        look(open_bucket(source), source)


def test_a_private_bucket_says_to_log_in(without_credentials: GcsServer) -> None:
    without_credentials.allow("sets", {})
    source = GcsSource("sets", "set/x")

    with pytest.raises((StorePermissionError, CredentialsError)) as raised:
        look(open_bucket(source), source)

    assert "gcloud auth application-default login" in (raised.value.hint or "")
