"""Data of other buckets over the wire: two servers, faults, objects that change meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kinetic_payload.data.bucket import download, look, open_bucket
from kinetic_payload.data.sources import GcsSource
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
