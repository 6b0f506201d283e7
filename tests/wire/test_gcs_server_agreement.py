"""Behaviour of the API that our server and one of other authors share."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage

from .conftest import client_of

QUANTUM = 256 * 1024


@pytest.fixture
def client(either_gcs: str) -> storage.Client:
    return client_of(either_gcs)


@pytest.fixture
def bucket(client: storage.Client) -> storage.Bucket:
    return client.bucket("bucket")


def put(bucket: storage.Bucket, name: str, data: bytes = b"data", **how: Any) -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data, **how)
    return blob


def test_a_bucket_exists_from_its_creation_to_its_deletion(client: storage.Client) -> None:
    client.create_bucket("another")

    assert client.bucket("another").exists()
    assert not client.bucket("nothing").exists()
    assert {"another", "bucket"} <= {found.name for found in client.list_buckets()}
    with pytest.raises(exceptions.Conflict):
        client.create_bucket("another")
    client.bucket("another").delete()
    assert not client.bucket("another").exists()


@pytest.mark.parametrize("size", [0, 1, 70_000, 9 * 1024 * 1024])
def test_an_object_is_downloaded_as_it_was_uploaded(bucket: storage.Bucket, size: int) -> None:
    data = os.urandom(size)
    sent = put(bucket, "o", data, content_type="text/x-test")
    found = bucket.get_blob("o")

    assert found is not None
    assert (found.size, found.content_type, found.generation) == (
        size, "text/x-test", sent.generation,
    )  # fmt: skip
    assert (found.crc32c, found.md5_hash) == (sent.crc32c, sent.md5_hash)
    assert found.download_as_bytes() == data


def test_an_upload_in_chunks_arrives_whole(bucket: storage.Bucket) -> None:
    data = os.urandom(3 * QUANTUM + 7)
    blob = bucket.blob("o", chunk_size=QUANTUM)
    blob.upload_from_file(io.BytesIO(data))

    assert blob.download_as_bytes() == data
    assert (
        bucket.blob("o").download_as_bytes(start=QUANTUM - 5, end=QUANTUM + 4)
        == (data[QUANTUM - 5 : QUANTUM + 5])
    )


@pytest.mark.parametrize("name", ["a/b", "with space", "ä/日本", "100%", "%2F", "a?b&c=d", "~.-_"])
def test_names_are_kept(bucket: storage.Bucket, name: str) -> None:
    put(bucket, name, name.encode())

    assert [blob.name for blob in bucket.list_blobs()] == [name]
    assert bucket.blob(name).download_as_bytes() == name.encode()
    bucket.blob(name).delete()
    assert list(bucket.list_blobs()) == []


def test_lists_are_ordered_and_grouped(bucket: storage.Bucket) -> None:
    for name in ("b", "a/2", "a/1/x", "a-b", "a/1/y", "c/d"):
        put(bucket, name)

    def listed(**how: Any) -> tuple[list[str], list[str]]:
        found = bucket.list_blobs(**how)
        return [blob.name for blob in found], sorted(found.prefixes)

    assert listed() == (["a-b", "a/1/x", "a/1/y", "a/2", "b", "c/d"], [])
    assert listed(prefix="a/") == (["a/1/x", "a/1/y", "a/2"], [])
    assert listed(delimiter="/") == (["a-b", "b"], ["a/", "c/"])
    assert listed(prefix="a/", delimiter="/") == (["a/2"], ["a/1/"])
    assert listed(start_offset="a/1/y", end_offset="c") == (["a/1/y", "a/2", "b"], [])
    assert listed(prefix="none") == ([], [])


def test_a_glob_selects_from_a_list(bucket: storage.Bucket, either_gcs: str) -> None:
    for name in ("a/x.json", "a/y.json", "a/z.json", "a/b/x.json", "x.json"):
        put(bucket, name)

    found = [blob.name for blob in bucket.list_blobs(prefix="a/", match_glob="*/{x,y}.json")]

    # The second server has no globs: what lists with one has to look at the names as well.
    assert found in (["a/x.json", "a/y.json"], ["a/b/x.json", "a/x.json", "a/y.json", "a/z.json"])


def test_metadata_is_kept_and_changed(bucket: storage.Bucket) -> None:
    blob = bucket.blob("o")
    blob.metadata = {"a": "1"}
    blob.upload_from_string(b"data")
    blob.metadata = {"a": "1", "b": "2"}
    blob.patch()

    found = bucket.get_blob("o")
    assert found is not None
    assert found.metadata == {"a": "1", "b": "2"}
    assert found.download_as_bytes() == b"data"


def test_a_copy_keeps_the_bytes(bucket: storage.Bucket) -> None:
    bucket.blob("rewritten").rewrite(put(bucket, "one", b"1" * 100_000))

    assert bucket.blob("rewritten").download_as_bytes() == b"1" * 100_000


def test_a_missing_object_is_not_found(bucket: storage.Bucket) -> None:
    blob = bucket.blob("nothing")
    blob.metadata = {"a": "1"}
    acts: list[Callable[[], Any]] = [
        blob.download_as_bytes,
        blob.reload,
        blob.delete,
        blob.patch,
        lambda: bucket.blob("o").rewrite(blob),
    ]

    for act in acts:
        with pytest.raises(exceptions.NotFound):
            act()
    assert bucket.get_blob("nothing") is None
    assert not blob.exists()


def test_a_range_beyond_the_end_is_not_satisfiable(bucket: storage.Bucket) -> None:
    put(bucket, "o", b"0123456789")

    assert bucket.blob("o").download_as_bytes(start=8, end=100) == b"89"
    assert bucket.blob("o").download_as_bytes(start=-3) == b"789"
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        bucket.blob("o").download_as_bytes(start=10)
