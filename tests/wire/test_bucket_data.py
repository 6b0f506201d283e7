"""Data of other buckets over the wire: two servers, faults, objects that change meanwhile."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.data.bucket import download, look, open_bucket
from kinetic_payload.data.sources import GcsSource
from kinetic_payload.errors import DataError
from kinetic_servers.gcs import GcsServer

from .conftest import client_of

MIB = 1 << 20


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def some_files(seed: int) -> dict[str, bytes]:
    """Return files below folders, of odd names and of sizes about the limits."""
    chance = random.Random(seed)
    letters = ["a", "B", "ü", "☃", "😀", " ", "%", "#", "?", "+", "&", ".", "-"]

    def name() -> str:
        return "x" + "".join(chance.choices(letters, k=chance.randrange(1, 9)))

    files = {f"{name()}/{name()}/{n}": chance.randbytes(chance.randrange(3000)) for n in range(20)}
    return {**files, "empty": b"", "large.bin": chance.randbytes(20 * MIB + 7)}


def upload(bucket: Any, prefix: str, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        bucket.blob(prefix + name).upload_from_string(data)


def test_objects_of_googles_client_arrive_unchanged_from_either_server(
    either_gcs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", either_gcs)
    files = some_files(0)
    upload(client_of(either_gcs).bucket("bucket"), "set/", files)
    source = GcsSource("bucket", "set/")

    look(open_bucket(source), source)
    download(open_bucket(source), source, tmp_path / "set")

    assert tree(tmp_path / "set") == files


def test_a_missing_source_is_an_error_with_the_nearest_name(
    either_gcs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", either_gcs)
    upload(client_of(either_gcs).bucket("bucket"), "set/", {"weights.h5": b"1"})

    for name, hint in [
        ("set", "gs://bucket/set/"),
        ("set/weights.h5/", "gs://bucket/set/weights.h5"),
        ("set/wheights.h5", "Did you mean gs://bucket/set/weights.h5?"),
        ("ste/", "Did you mean gs://bucket/set/?"),
    ]:
        source = GcsSource("bucket", name)
        with pytest.raises(DataError) as raised:
            look(open_bucket(source), source)
        assert hint in (raised.value.hint or ""), name
    source = GcsSource("no-such-bucket", "x")
    with pytest.raises(DataError, match="There is no bucket 'no-such-bucket'"):
        look(open_bucket(source), source)


def test_a_download_of_a_folder_survives_transient_faults(
    gcs: GcsServer, gcs_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
    files = some_files(7)
    upload(gcs_client.bucket("bucket"), "set/", files)
    gcs.faults.add(operation="objects.list", status=503, times=1)
    gcs.faults.add(operation="objects.get.media", status=429, times=3)
    gcs.faults.add(operation="objects.get.media", name="set/large.bin", reset="response", times=2)
    source = GcsSource("bucket", "set/")

    download(open_bucket(source), source, tmp_path / "set")

    assert tree(tmp_path / "set") == files


def test_an_object_replaced_during_a_download_is_never_a_mixture(
    gcs: GcsServer, gcs_client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.endpoint)
    blob = gcs_client.bucket("bucket").blob("set/model.bin")
    old, new = b"o" * (40 * MIB), b"n" * (40 * MIB)
    blob.upload_from_string(old)
    gcs.faults.add(operation="objects.get.media", delay=0.3, after=1)
    source = GcsSource("bucket", "set/")

    def replace() -> None:
        while gcs.requests.count(operation="objects.get.media") == 0:
            gone.wait(0.01)
        blob.upload_from_string(new)

    gone = threading.Event()
    replacing = threading.Thread(target=replace)
    replacing.start()
    download(open_bucket(source), source, tmp_path / "set")
    replacing.join()

    assert (tmp_path / "set" / "model.bin").read_bytes() in (old, new)
