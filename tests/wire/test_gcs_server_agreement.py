"""Behaviour of the API that our server and one of other authors share."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage

from .conftest import client_of


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


def test_a_range_beyond_the_end_is_not_satisfiable(bucket: storage.Bucket) -> None:
    put(bucket, "o", b"0123456789")

    assert bucket.blob("o").download_as_bytes(start=8, end=100) == b"89"
    assert bucket.blob("o").download_as_bytes(start=-3) == b"789"
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        bucket.blob("o").download_as_bytes(start=10)
