"""The strict bucket server: what Google's own client does with buckets and objects."""

from __future__ import annotations

import base64
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage
from hypothesis import given
from hypothesis import strategies as st

from kinetic_servers.gcs import GcsServer
from kinetic_servers.gcs.listing import Listing, page_of

Ask = Callable[..., Any]
OBJECTS = "/storage/v1/b/bucket/o"


def put(bucket: storage.Bucket, name: str, data: bytes = b"data", **how: Any) -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data, **how)
    return blob


# --- Buckets


@pytest.mark.parametrize(
    "name",
    ["ab", "Upper", "ends-", "-begins", "10.0.0.1", "goog-x", "my-google-x", "a..b", "x" * 64],
)
def test_an_invalid_name_of_a_bucket_is_refused(client: storage.Client, name: str) -> None:
    with pytest.raises(exceptions.BadRequest, match="Invalid bucket name"):
        client._post_resource("/b", {"name": name}, query_params={"project": "p"})


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


def test_an_object_has_the_metadata_and_checksums_of_its_upload(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a/ä b%2F+.txt")
    blob.metadata = {"a": "1", "key": "välue"}
    blob.upload_from_string(b"hello", content_type="text/x-test")
    blob.metadata = {"a": None, "b": "2"}
    blob.patch()

    found = bucket.get_blob("a/ä b%2F+.txt")
    assert found is not None
    assert (found.size, found.metageneration, found.content_type) == (5, 2, "text/x-test")
    assert found.metadata == {"b": "2", "key": "välue"}
    assert found.crc32c == base64.b64encode(google_crc32c.Checksum(b"hello").digest()).decode()
    assert found.md5_hash == "XUFAKrxLKna5cZ2REBfFkg=="
    assert found.id == f"bucket/a/ä b%2F+.txt/{blob.generation}"


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


def test_a_condition_that_is_no_number_is_refused(server: GcsServer, ask: Ask) -> None:
    ask("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=o")
    refused = ask("DELETE", f"{OBJECTS}/o?ifGenerationMatch=x")

    assert refused.status == 400
    assert refused.data["error"]["errors"][0]["reason"] == "invalid"
    assert server.names("bucket") == ["o"]


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


@pytest.mark.parametrize("size", [10, 200_000])
def test_ranges_end_where_the_object_ends(bucket: storage.Bucket, ask: Ask, size: int) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    blob = put(bucket, "o", data, content_type="text/x-test")
    path = "/download/storage/v1/b/bucket/o/o?alt=media"

    for header, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=3-5", 3, 6),
        ("bytes=4-", 4, size),
        (f"bytes=5-{size * 2}", 5, size),
        ("bytes=-3", size - 3, size),
        (f"bytes=-{size * 2}", 0, size),
    ):
        got = ask("GET", path, Range=header)
        assert (got.status, got.body) == (206, data[start:end])
        assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for header in ("bytes=5-3", "bytes=a-b", "items=0-1", "bytes=0-1,3-4"):
        got = ask("GET", path, Range=header)
        assert (got.status, got.body) == (200, data)
        assert got.headers["x-goog-hash"] == f"crc32c={blob.crc32c},md5={blob.md5_hash}"
        assert got.headers["x-goog-generation"] == str(blob.generation)
        assert got.headers["x-goog-stored-content-length"] == str(size)
        assert got.headers["content-type"] == "text/x-test"
    for header in (f"bytes={size}-", f"bytes={size + 5}-{size + 9}", "bytes=-0"):
        got = ask("GET", path, Range=header)
        assert (got.status, got.headers["content-range"]) == (416, f"bytes */{size}")


def test_a_download_continues_when_its_object_is_replaced(
    server: GcsServer, bucket: storage.Bucket
) -> None:
    old = b"a" * 30_000_000
    put(bucket, "o", old)
    connection = HTTPConnection(server.host, timeout=100)
    connection.request("GET", f"{OBJECTS}/o?alt=media")
    answer = connection.getresponse()
    begin = answer.read(10)
    put(bucket, "o", b"b")
    bucket.delete_blob("o")

    assert begin + answer.read() == old
    connection.close()


# --- Lists


def test_lists_are_grouped_bounded_and_paged(bucket: storage.Bucket) -> None:
    names = ["a-b", "a/", "a/0", "a/b/c", "a/b/d", "a0", "b/c", "ü/x", "\U0001f600"]
    for name in names:
        put(bucket, name)

    def listed(**how: Any) -> tuple[list[str], list[str]]:
        pages = bucket.list_blobs(**how)
        return [blob.name for blob in pages], sorted(pages.prefixes)

    assert listed(delimiter="/") == (["a-b", "a0", "\U0001f600"], ["a/", "b/", "ü/"])
    assert listed(delimiter="/", prefix="a/") == (["a/", "a/0"], ["a/b/"])
    assert listed(start_offset="a/0", end_offset="b") == (["a/0", "a/b/c", "a/b/d", "a0"], [])
    assert listed(delimiter="/", page_size=1) == listed(delimiter="/")
    assert listed(page_size=2) == listed(versions=True) == (names, [])
    assert listed(max_results=3) == (names[:3], [])
    assert listed(fields="items(name),nextPageToken", page_size=4) == (names, [])
    assert listed(match_glob="{?,*/*}", page_size=2)[0] == ["a/", "a/0", "b/c", "ü/x", "\U0001f600"]
    assert listed(match_glob="a?0") == listed(match_glob="a+b") == ([], [])
    for wrong in (
        {"page_token": "no token"},
        {"match_glob": "{a,{b}}"},
        {"match_glob": "*", "delimiter": "/"},
    ):
        with pytest.raises(exceptions.BadRequest):
            listed(**wrong)


def test_only_the_selected_fields_are_sent(bucket: storage.Bucket, ask: Ask) -> None:
    put(bucket, "o")

    def fields(path: str, selection: str) -> Any:
        return ask("GET", f"{path}?fields={selection}").data

    assert fields(OBJECTS, "items(name,size)") == {"items": [{"name": "o", "size": "4"}]}
    assert fields(OBJECTS, "items/name,kind") == {
        "items": [{"name": "o"}],
        "kind": "storage#objects",
    }
    assert "md5Hash" in fields(OBJECTS, "*")["items"][0]
    for wrong in ("items(", "a,,b", "name)", "nonsense"):
        assert ask("GET", f"{OBJECTS}/o?fields={wrong}").status == 400


ALPHABET = st.sampled_from("a/b-")
NAMES = st.lists(st.text(ALPHABET, min_size=1, max_size=5), unique=True, max_size=12).map(sorted)


@given(
    names=NAMES,
    prefix=st.text(ALPHABET, max_size=2),
    delimiter=st.sampled_from(["", "/", "-", "ab"]),
    start=st.text(ALPHABET, max_size=2),
    end=st.text(ALPHABET, max_size=2),
    limit=st.integers(1, 4),
)
def test_pages_together_list_every_selected_name_once(
    names: list[str], prefix: str, delimiter: str, start: str, end: str, limit: int
) -> None:
    items, groups = [], []
    for name in names:
        if not name.startswith(prefix) or name < start or (end and name >= end):
            continue
        head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if found:
            groups.append(prefix + head + found)
        else:
            items.append(name)
    seen_items: list[str] = []
    seen_groups: list[str] = []
    token = ""
    while True:
        wanted = Listing(prefix, delimiter, start=start, end=end, limit=limit, token=token)
        page = page_of(names, wanted)
        assert 0 < len(page.names) + len(page.prefixes) <= limit or not page.token
        seen_items += page.names
        seen_groups += page.prefixes
        token = page.token
        if not token:
            break

    assert seen_items == items
    assert seen_groups == sorted(set(groups))


# --- Wrong requests


def test_unknown_paths_are_not_found(ask: Ask) -> None:
    for path in ("/storage/v1/b/bucket/o/raw/slash", "/storage/v2/b", "/nothing"):
        assert ask("GET", path).status == 404
    assert ask("GET", "/storage/v1/b/bucket/o/%ff").status == 400
