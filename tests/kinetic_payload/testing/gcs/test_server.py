"""The strict bucket server: what Google's own client does with buckets and objects."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from typing import Any

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage
from hypothesis import given, settings
from hypothesis import strategies as st

from kinetic_payload.testing.gcs import GcsServer
from kinetic_payload.testing.gcs.listing import Listing, page_of
from kinetic_payload.testing.gcs.resources import OBJECT_FIELDS


def put(bucket: storage.Bucket, name: str, data: bytes = b"data", **how: Any) -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data, **how)
    return blob


def ask(
    server: GcsServer, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send one request as it is, and return status, headers (names in lower case) and body."""
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    data = answer.read()
    connection.close()
    return answer.status, found, data


# --- Buckets


def test_a_bucket_is_made_found_and_deleted(client: storage.Client) -> None:
    bucket = client.bucket("jobs")
    assert not bucket.exists()
    made = client.create_bucket(bucket)
    assert (made.location, made.metageneration) == ("US", 1)

    again = client.get_bucket("jobs")
    again.delete()
    assert not bucket.exists()


def test_buckets_are_listed_by_project(client: storage.Client) -> None:
    for name in ("aa-1", "aa-2", "ab-3"):
        client.create_bucket(name)
    client.create_bucket("aa-other", project="another")

    assert [b.name for b in client.list_buckets(prefix="aa")] == ["aa-1", "aa-2"]
    assert [b.name for b in client.list_buckets(page_size=1)] == ["aa-1", "aa-2", "ab-3", "bucket"]


@pytest.mark.parametrize(
    "name",
    ["ab", "Upper", "ends-", "-begins", "10.0.0.1", "goog-x", "my-google-x", "a..b", "x" * 64],
)
def test_a_name_that_no_bucket_may_have_is_refused(client: storage.Client, name: str) -> None:
    with pytest.raises(exceptions.BadRequest, match="Invalid bucket name"):
        client._post_resource("/b", {"name": name}, query_params={"project": "p"})


def test_a_bucket_that_is_there_or_not_empty_or_missing_is_a_conflict_or_not_found(
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


def test_an_object_is_what_was_written(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a/ä b%2F+.txt")
    blob.metadata = {"key": "välue"}
    began, second = datetime.now(UTC), timedelta(seconds=1)
    blob.upload_from_string(b"hello", content_type="text/x-test")

    found = bucket.get_blob("a/ä b%2F+.txt")
    assert found is not None
    assert (found.size, found.metageneration, found.content_type) == (5, 1, "text/x-test")
    assert found.metadata == {"key": "välue"}
    assert found.crc32c == base64.b64encode(google_crc32c.Checksum(b"hello").digest()).decode()
    assert found.md5_hash == "XUFAKrxLKna5cZ2REBfFkg=="
    assert began - second < found.updated < datetime.now(UTC) + second
    assert found.download_as_bytes() == b"hello"
    assert found.id == f"bucket/a/ä b%2F+.txt/{found.generation}"


@pytest.mark.parametrize("name", ["line\nfeed", "carriage\rreturn", ".", "..", "ü" * 513])
def test_a_name_that_no_object_may_have_is_refused(bucket: storage.Bucket, name: str) -> None:
    with pytest.raises(exceptions.BadRequest):
        put(bucket, name)
    with pytest.raises(exceptions.BadRequest):
        bucket.blob(name).create_resumable_upload_session()


@pytest.mark.parametrize("name", ["ü" * 512, "a//b", "/", "%2F", "a?b#c&d=e+f", "\t", "\U0001f600"])
def test_a_name_that_objects_may_have_stays_itself(bucket: storage.Bucket, name: str) -> None:
    put(bucket, name, name.encode())

    assert [blob.name for blob in bucket.list_blobs()] == [name]
    assert bucket.blob(name).download_as_bytes() == name.encode()
    bucket.blob(name).delete()


def test_generations_rise_also_after_a_deletion(bucket: storage.Bucket) -> None:
    seen = []
    for turn in range(6):
        blob = put(bucket, "o")
        seen.append(blob.generation)
        if turn % 2:
            blob.delete()

    assert seen == sorted(set(seen))


def test_an_old_generation_is_gone_with_the_overwrite(bucket: storage.Bucket) -> None:
    put(bucket, "o", b"old")
    pinned = bucket.get_blob("o")
    put(bucket, "o", b"new")

    assert pinned is not None
    with pytest.raises(exceptions.NotFound, match="No such object: bucket/o"):
        pinned.download_as_bytes()
    with pytest.raises(exceptions.NotFound):
        bucket.delete_blob("o", generation=pinned.generation)
    assert bucket.blob("o").download_as_bytes() == b"new"


def test_metadata_is_merged_by_a_patch(bucket: storage.Bucket) -> None:
    blob = bucket.blob("o")
    blob.metadata = {"a": "1", "b": "2"}
    blob.upload_from_string(b"", content_type="text/plain")
    generation = blob.generation

    blob.metadata = {"a": None, "c": "3"}
    blob.patch()
    found = bucket.get_blob("o")
    assert found is not None
    assert found.metadata == {"b": "2", "c": "3"}
    assert (found.generation, found.metageneration) == (generation, 2)


# --- Preconditions


def test_every_call_keeps_its_preconditions(bucket: storage.Bucket) -> None:
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
            lambda: fresh().compose([fresh()], if_generation_match=stale),
        ):
            with pytest.raises(exceptions.PreconditionFailed):
                act()

    assert [(one.name, one.generation) for one in bucket.list_blobs()] == [("o", right)]
    assert fresh().download_as_bytes(if_generation_match=right) == b"1"
    fresh().patch(if_generation_match=right)
    fresh().upload_from_string(b"2", if_generation_match=right)
    with pytest.raises(exceptions.PreconditionFailed):
        fresh().delete(if_generation_match=right)


def test_a_condition_that_is_no_number_is_refused(
    server: GcsServer, bucket: storage.Bucket
) -> None:
    put(bucket, "o")
    status, _, body = ask(server, "DELETE", "/storage/v1/b/bucket/o/o?ifGenerationMatch=x")

    assert status == 400
    assert json.loads(body)["error"]["errors"][0]["reason"] == "invalid"
    assert server.names("bucket") == ["o"]


# --- Downloads


@pytest.mark.parametrize("size", [10, 200_000])
def test_ranges_end_where_the_object_ends(
    server: GcsServer, bucket: storage.Bucket, size: int
) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    put(bucket, "o", data)
    path = "/download/storage/v1/b/bucket/o/o?alt=media"

    for header, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=3-5", 3, 6),
        ("bytes=4-", 4, size),
        (f"bytes=5-{size * 2}", 5, size),
        ("bytes=-3", size - 3, size),
        (f"bytes=-{size * 2}", 0, size),
    ):
        status, headers, body = ask(server, "GET", path, Range=header)
        assert (status, body) == (206, data[start:end])
        assert headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for header in ("bytes=5-3", "bytes=a-b", "items=0-1", "bytes=0-1,3-4"):
        assert ask(server, "GET", path, Range=header)[::2] == (200, data)
    for header in (f"bytes={size}-", f"bytes={size + 5}-{size + 9}", "bytes=-0"):
        status, headers, _ = ask(server, "GET", path, Range=header)
        assert (status, headers["content-range"]) == (416, f"bytes */{size}")
    with pytest.raises(exceptions.RequestRangeNotSatisfiable):
        bucket.blob("o").download_as_bytes(start=size)


def test_a_download_carries_what_it_takes_to_check_it(
    server: GcsServer, bucket: storage.Bucket
) -> None:
    blob = put(bucket, "o", b"hello", content_type="text/x-test")

    for extra in ({}, {"Range": "bytes=1-2"}):
        path = "/storage/v1/b/bucket/o/o?alt=media"
        _, headers, _ = ask(server, "GET", path, **extra)
        assert headers["x-goog-hash"] == f"crc32c={blob.crc32c},md5={blob.md5_hash}"
        assert headers["x-goog-generation"] == str(blob.generation)
        assert headers["x-goog-stored-content-length"] == "5"
        assert headers["content-type"] == "text/x-test"
        assert "content-encoding" not in headers


def test_a_download_goes_on_when_its_object_is_replaced(
    server: GcsServer, bucket: storage.Bucket
) -> None:
    old = b"a" * 30_000_000
    put(bucket, "o", old)
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
    connection.request("GET", "/storage/v1/b/bucket/o/o?alt=media")
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

    assert listed() == (names, [])
    assert listed(prefix="a/") == (["a/", "a/0", "a/b/c", "a/b/d"], [])
    assert listed(delimiter="/") == (["a-b", "a0", "\U0001f600"], ["a/", "b/", "ü/"])
    assert listed(delimiter="/", prefix="a/") == (["a/", "a/0"], ["a/b/"])
    assert listed(start_offset="a/0", end_offset="b") == (["a/0", "a/b/c", "a/b/d", "a0"], [])
    assert listed(delimiter="/", page_size=1) == listed(delimiter="/")
    assert listed(page_size=2) == (names, [])
    assert listed(max_results=3) == (names[:3], [])
    assert listed(versions=True) == (names, [])
    assert listed(fields="items(name),nextPageToken", page_size=4) == (names, [])
    assert listed(match_glob="{?,*/*}", page_size=2)[0] == ["a/", "a/0", "b/c", "ü/x", "\U0001f600"]
    with pytest.raises(exceptions.BadRequest):
        listed(page_token="no token")


def test_a_page_is_a_thousand_names_at_most(server: GcsServer, bucket: storage.Bucket) -> None:
    source = put(bucket, "0", b"")
    for number in range(1100):
        bucket.copy_blob(source, bucket, f"n/{number:04}")
    server.requests.clear()

    assert len(list(bucket.list_blobs(page_size=5000))) == 1101
    assert server.requests.count(operation="objects.list") == 2


def test_only_the_wanted_fields_are_sent(server: GcsServer, bucket: storage.Bucket) -> None:
    put(bucket, "o")
    place = "/storage/v1/b/bucket/o"

    def fields(path: str, selection: str) -> Any:
        return json.loads(ask(server, "GET", f"{path}?fields={selection}")[2])

    assert fields(place, "items(name,size)") == {"items": [{"name": "o", "size": "4"}]}
    assert fields(place, "items/name,kind") == {"items": [{"name": "o"}], "kind": "storage#objects"}
    assert fields(f"{place}/o", "name") == {"name": "o"}
    assert "md5Hash" in fields(place, "*")["items"][0]
    for wrong in ("items(", "a,,b", "name)", "", "nonsense"):
        status = ask(server, "GET", f"{place}/o?fields={wrong}")[0]
        assert (status, wrong) == (400 if wrong else 200, wrong)


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
def test_pages_join_to_what_a_plain_reading_of_the_rules_gives(
    names: list[str], prefix: str, delimiter: str, start: str, end: str, limit: int
) -> None:
    within = [n for n in names if n.startswith(prefix) and n >= start and (not end or n < end)]
    items, groups = [], []
    for name in within:
        head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
        if found:
            groups.append(prefix + head + found)
        else:
            items.append(name)
    seen_items: list[str] = []
    seen_groups: list[str] = []
    token = ""
    while True:
        page = page_of(
            names,
            Listing(prefix, delimiter, start=start, end=end, limit=limit, token=token),
        )
        assert 0 < len(page.names) + len(page.prefixes) <= limit or not page.token
        seen_items += page.names
        seen_groups += page.prefixes
        token = page.token
        if not token:
            break

    assert seen_items == items
    assert seen_groups == sorted(set(groups))


# --- Copies


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*", ["top"]),
        ("*/{x,y}.json", ["a/x.json", "a/y.json"]),
        ("a/?.json", ["a/x.json", "a/y.json"]),
        ("a?x.json", []),
        ("a/x+json", []),
    ],
)
def test_a_glob_matches_whole_names(bucket: storage.Bucket, glob: str, expected: list[str]) -> None:
    for name in ("a/x.json", "a/y.json", "a/b/x.json", "top"):
        bucket.blob(name).upload_from_string(b"")

    pages = bucket.list_blobs(match_glob=glob, page_size=1).pages
    assert [[blob.name for blob in page] for page in pages if page.num_items] == [
        [name] for name in expected
    ]


@pytest.mark.parametrize("how", [{"match_glob": "{a,{b}}"}, {"match_glob": "*", "delimiter": "/"}])
def test_a_glob_that_is_not_understood_is_refused(
    bucket: storage.Bucket, how: dict[str, str]
) -> None:
    with pytest.raises(exceptions.BadRequest):
        list(bucket.list_blobs(**how))


@pytest.mark.parametrize(
    ("metadata", "fits"),
    [
        ({"k": "x" * 4096}, True),
        ({"k": "x" * 4097}, False),
        ({"k" * 1025: "x"}, False),
        ({"k1": "x" * 4096, "k2": "ä" * 2046}, True),
        ({"k1": "x" * 4096, "k2": "ä" * 2047}, False),
    ],
)
def test_metadata_has_limits(bucket: storage.Bucket, metadata: dict[str, str], fits: bool) -> None:
    blob = bucket.blob("o")
    blob.metadata = metadata
    if fits:
        blob.upload_from_string(b"data")
    else:
        with pytest.raises(exceptions.BadRequest):
            blob.upload_from_string(b"data")
    assert bucket.blob("o").exists() == fits


def test_copies_keep_the_bytes_and_the_metadata(
    server: GcsServer, client: storage.Client, bucket: storage.Bucket
) -> None:
    other = client.create_bucket("other")
    blob = bucket.blob("o")
    blob.metadata = {"key": "value"}
    blob.upload_from_string(b"x" * 3_000_000, content_type="text/x-test")

    copied = bucket.copy_blob(blob, other, "copied")
    assert (copied.metadata, copied.content_type) == ({"key": "value"}, "text/x-test")
    assert copied.generation > blob.generation
    blob.delete()
    assert copied.download_as_bytes() == b"x" * 3_000_000
    with pytest.raises(exceptions.NotFound):
        bucket.copy_blob(blob, other, "again")


def test_a_rewrite_onto_itself_is_a_new_generation(bucket: storage.Bucket) -> None:
    before = put(bucket, "o", b"data", content_type="text/x-test").generation

    rewritten = bucket.blob("o").rewrite(
        bucket.blob("o"), if_generation_match=before, if_source_generation_match=before
    )
    after = bucket.get_blob("o")
    assert after is not None
    assert rewritten == (None, 4, 4)
    assert after.generation > before
    assert after.content_type == "text/x-test"


def test_metadata_that_a_rewrite_is_given_replaces_all_of_the_source(
    bucket: storage.Bucket,
) -> None:
    source = put(bucket, "o", b"data", content_type="text/x-test")
    target = bucket.blob("target")
    target.metadata = {"key": "value"}

    target.rewrite(source)

    assert (target.metadata, target.content_type) == ({"key": "value"}, None)


def test_composed_objects_have_no_md5(bucket: storage.Bucket) -> None:
    parts = [put(bucket, f"part-{n}", bytes([n]) * 100_000) for n in range(32)]
    whole = bucket.blob("whole")
    whole.content_type = "text/x-test"
    whole.compose(parts, if_generation_match=0)

    assert (whole.component_count, whole.md5_hash) == (32, None)
    assert whole.download_as_bytes() == b"".join(bytes([n]) * 100_000 for n in range(32))
    twice = bucket.blob("twice")
    twice.compose([whole, whole])
    assert (twice.component_count, twice.size) == (64, 6_400_000)
    with pytest.raises(exceptions.BadRequest, match="33"):
        bucket.blob("more").compose([*parts, parts[0]])
    with pytest.raises(exceptions.BadRequest):
        bucket.client._post_resource("/b/bucket/o/none/compose", {"sourceObjects": []})
    with pytest.raises(exceptions.NotFound):
        bucket.blob("more").compose([bucket.blob("nothing")])
    assert not bucket.blob("more").exists()


# --- What tests can do to the server


def test_objects_can_be_made_older(server: GcsServer, bucket: storage.Bucket) -> None:
    put(bucket, "data/o")
    put(bucket, "other")
    server.age("bucket", "data/", timedelta(days=20))

    ages = {b.name: datetime.now(UTC) - b.updated for b in bucket.list_blobs()}
    assert ages["data/o"] > timedelta(days=19)
    assert ages["other"] < timedelta(days=1)


def test_what_the_api_does_not_know_is_not_found(server: GcsServer) -> None:
    for path in ("/storage/v1/b/bucket/o/raw/slash", "/storage/v2/b", "/nothing"):
        assert ask(server, "GET", path)[0] == 404
    assert ask(server, "GET", "/storage/v1/b/bucket/o/%ff")[0] == 400


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from([*OBJECT_FIELDS, "name", "crc32c", "md5Hash"]) | st.sampled_from(
    ["sourceObjects", "destination"]
)


def test_no_body_however_wrong_makes_it_stumble(server: GcsServer, bucket: storage.Bucket) -> None:
    put(bucket, "o")
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)

    @settings(max_examples=300, deadline=None)
    @given(
        body=st.dictionaries(FIELDS, HOSTILE, max_size=3) | HOSTILE,
        call=st.sampled_from(
            [
                ("POST", "/storage/v1/b?project=p"),
                ("PATCH", "/storage/v1/b/bucket/o/o"),
                ("POST", "/storage/v1/b/bucket/o/p/compose"),
                ("POST", "/storage/v1/b/bucket/o/o/rewriteTo/b/bucket/o/p"),
                ("POST", "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=q"),
            ]
        ),
    )
    def answers(body: Any, call: tuple[str, str]) -> None:
        connection.request(*call, json.dumps(body).encode())
        answer = connection.getresponse()
        answer.read()
        assert answer.status < 500, (call, body)

    answers()
    connection.close()
