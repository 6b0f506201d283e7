"""The strict bucket server: what Google's own client does with buckets and objects."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage


def put(bucket: storage.Bucket, name: str, data: bytes = b"data", **how: Any) -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data, **how)
    return blob


# --- Buckets


def test_buckets_that_exist_or_are_missing_or_have_objects_are_reported_in_googles_words(
    client: storage.Client, bucket: storage.Bucket
) -> None:
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket("bucket")
    with pytest.raises(exceptions.Conflict, match="not available"):
        client.create_bucket("bucket", project="another")
    put(bucket, "o")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    for act in (
        lambda: client.get_bucket("nothing"),
        lambda: list(client.list_blobs("nothing")),
        lambda: put(client.bucket("nothing"), "o"),
        lambda: client.bucket("nothing").blob("o").download_as_bytes(),
        lambda: client.bucket("nothing").blob("o").create_resumable_upload_session(),
    ):
        with pytest.raises(exceptions.NotFound, match=r"The specified bucket does not exist\."):
            act()


# --- Objects


@pytest.mark.parametrize("name", ["line\nfeed", "carriage\rreturn", ".", "..", "ü" * 513])
def test_an_invalid_name_of_an_object_is_refused(bucket: storage.Bucket, name: str) -> None:
    with pytest.raises(exceptions.BadRequest):
        put(bucket, name)
    with pytest.raises(exceptions.BadRequest):
        bucket.blob(name).create_resumable_upload_session()


def test_generations_rise_and_an_old_one_is_gone(bucket: storage.Bucket) -> None:
    seen = []
    for turn in range(6):
        blob = put(bucket, "o", b"%d" % turn)
        seen.append(blob.generation)
        if turn % 2:
            blob.delete()
    assert seen == sorted(set(seen))

    old = put(bucket, "o", b"old").generation
    put(bucket, "o", b"new")
    with pytest.raises(exceptions.NotFound, match="No such object: bucket/o"):
        bucket.blob("o", generation=old).download_as_bytes()
    with pytest.raises(exceptions.NotFound):
        bucket.delete_blob("o", generation=old)
    assert bucket.blob("o").download_as_bytes() == b"new"


def test_every_call_checks_its_preconditions(bucket: storage.Bucket) -> None:
    blob = put(bucket, "o", b"1")
    right, wrong, absent = blob.generation, blob.generation + 1, 0
    fresh = lambda: bucket.blob("o")  # noqa: E731 - a blob that knows no generation

    for stale in (wrong, absent):
        for act in (
            lambda: fresh().upload_from_string(b"2", if_generation_match=stale),
            lambda: fresh().create_resumable_upload_session(if_generation_match=stale),
            lambda: fresh().download_as_bytes(if_generation_match=stale),
            lambda: fresh().reload(if_generation_match=stale),
            lambda: fresh().patch(if_generation_match=stale),
            lambda: fresh().delete(if_generation_match=stale),
            lambda: bucket.copy_blob(fresh(), bucket, "o", if_generation_match=stale),
            lambda: bucket.copy_blob(fresh(), bucket, "p", if_source_generation_match=stale),
            lambda: fresh().rewrite(fresh(), if_generation_match=stale),
            lambda: bucket.blob("p").rewrite(fresh(), if_source_generation_match=stale),
        ):
            with pytest.raises(exceptions.PreconditionFailed):
                act()

    assert [(one.name, one.generation) for one in bucket.list_blobs()] == [("o", right)]
    assert fresh().download_as_bytes(if_generation_match=right) == b"1"
    fresh().patch(if_generation_match=right)
    fresh().upload_from_string(b"2", if_generation_match=right)
    with pytest.raises(exceptions.PreconditionFailed):
        fresh().delete(if_generation_match=right)


def test_a_copy_has_the_metadata_of_its_source_or_only_that_of_the_request(
    client: storage.Client, bucket: storage.Bucket
) -> None:
    other = client.create_bucket("other")
    blob = bucket.blob("o")
    blob.metadata = {"key": "value"}
    blob.upload_from_string(b"x" * 3_000_000, content_type="text/x-test")
    copied = bucket.copy_blob(blob, other, "copied")
    again = bucket.blob("o")
    size = again.rewrite(blob, if_generation_match=blob.generation)
    target = bucket.blob("target")
    target.metadata = {"other": "value"}
    target.rewrite(bucket.blob("o"))

    assert (copied.metadata, copied.content_type) == ({"key": "value"}, "text/x-test")
    assert size == (None, 3_000_000, 3_000_000)
    assert bucket.get_blob("o").generation > copied.generation > blob.generation
    assert (target.metadata, target.content_type) == ({"other": "value"}, None)
    bucket.delete_blob("o")
    assert copied.download_as_bytes() == b"x" * 3_000_000
    with pytest.raises(exceptions.NotFound):
        bucket.copy_blob(blob, other, "again")


# --- Downloads


# --- Lists


# --- Wrong requests
