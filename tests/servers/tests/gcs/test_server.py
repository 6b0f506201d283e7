"""The strict bucket server where other servers differ: preconditions, permissions, sessions. See `tests/wire`, too."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.oauth2.credentials import Credentials

from kinetic_servers.gcs import GcsServer, Tokens

QUANTUM = 256 * 1024
CONTENT = bytes(range(256)) * 4 * 1024  # Four quanta.
UPLOADS = "/upload/storage/v1/b/bucket/o"
READER = "reader@test-project.iam.gserviceaccount.com"
Ask = Callable[..., Any]


def put(bucket: storage.Bucket, name: str, data: bytes = b"data") -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data)
    return blob


def test_a_missing_bucket_and_one_with_objects_are_reported_in_googles_words(
    client: storage.Client, bucket: storage.Bucket
) -> None:
    put(bucket, "o")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    with pytest.raises(exceptions.NotFound, match=r"The specified bucket does not exist\."):
        put(client.bucket("nothing"), "o")
    with pytest.raises(exceptions.BadRequest):
        put(bucket, "line\nfeed")


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
            lambda: fresh().rewrite(fresh(), if_generation_match=stale),
            lambda: bucket.blob("p").rewrite(fresh(), if_source_generation_match=stale),
        ):
            with pytest.raises(exceptions.PreconditionFailed):
                act()

    assert [(one.name, one.generation) for one in bucket.list_blobs()] == [("o", right)]
    fresh().upload_from_string(b"2", if_generation_match=right)
    with pytest.raises(exceptions.PreconditionFailed):
        fresh().delete(if_generation_match=right)
    with pytest.raises(exceptions.NotFound, match="No such object: bucket/o"):
        bucket.blob("o", generation=right).download_as_bytes()


@pytest.fixture
def guarded() -> Iterator[GcsServer]:
    with GcsServer(tokens=Tokens()) as running:
        running.create_bucket("bucket")
        yield running


def test_a_missing_permission_is_named(guarded: GcsServer) -> None:
    options = {"api_endpoint": guarded.endpoint}
    assert guarded.tokens is not None
    token = Credentials(guarded.tokens.issue(READER))
    bucket = storage.Client("test-project", token, client_options=options).bucket("bucket")
    put(bucket, "o")
    guarded.allow("bucket", {READER: ("storage.objects.get", "storage.objects.create")})

    assert bucket.blob("o").download_as_bytes() == b"data"
    for permission, act in (
        ("storage.objects.list", lambda: list(bucket.list_blobs())),
        # A caller that may not list does not learn that an object is missing.
        ("storage.objects.list", lambda: bucket.blob("nothing").download_as_bytes()),
        # To replace an object is to delete it.
        ("storage.objects.delete", lambda: put(bucket, "o")),
        ("storage.objects.delete", lambda: bucket.blob("o").create_resumable_upload_session()),
        ("storage.objects.delete", lambda: bucket.blob("o").delete()),
        ("storage.buckets.get", bucket.reload),
    ):
        words = f"{READER} does not have {permission} access to the Google Cloud Storage "
        with pytest.raises(exceptions.Forbidden, match=words):
            act()


@pytest.mark.parametrize("size", [1, 70_000])
def test_a_multipart_upload_ends_at_its_boundary_only(
    server: GcsServer, size: int, ask: Ask
) -> None:
    # Almost the boundary, again and again, and just before the real one.
    content = (b"\r\n--edg\r\n--" * (size // 11 + 1))[: max(size - 6, 0)] + b"\r\n--ed"[:size]
    body = b'--edge\r\ncontent-type: application/json\r\n\r\n{"name": "o"}'
    body += b"\r\n--edge\r\nContent-Type: text/x-test\r\n\r\n" + content + b"\r\n--edge--\r\n"
    kind = 'multipart/related; boundary="edge"'

    assert ask("POST", f"{UPLOADS}?uploadType=multipart", body, Content_Type=kind).status == 200
    assert server.read("bucket", "o") == content


def test_a_session_reports_its_offset_keeps_whole_quanta_and_checks_at_its_end(
    server: GcsServer, ask: Ask
) -> None:
    total = len(CONTENT)

    def begin(query: str = "") -> Callable[..., Any]:
        begun = ask("POST", f"{UPLOADS}?uploadType=resumable&name=o{query}")
        address = urlsplit(begun.headers["location"])
        path = f"{address.path}?{address.query}"
        return lambda data, at, **more: ask("PUT", path, data, Content_Range=f"bytes {at}", **more)

    send = begin()
    odd = send(CONTENT[: QUANTUM + 100], f"0-{QUANTUM + 99}/{total}")
    assert (odd.status, odd.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    asked = send(b"", f"*/{total}")
    assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    # Bytes that arrived before are skipped, and a repeated end writes nothing again.
    last = f"{QUANTUM - 5}-{total - 1}/{total}"
    done, again = (send(CONTENT[QUANTUM - 5 :], last) for _ in range(2))
    assert (done.status, again.data["generation"]) == (200, done.data["generation"])
    assert server.read("bucket", "o") == CONTENT

    late, wrong = begin(f"&ifGenerationMatch={done.data['generation']}"), begin()
    assert ask("POST", f"{UPLOADS}?uploadType=media&name=o", b"other").status == 200
    assert late(CONTENT, f"0-{total - 1}/{total}").status == 412
    other = base64.b64encode(google_crc32c.Checksum(b"other").digest()).decode()
    refused = wrong(CONTENT, f"0-{total - 1}/{total}", x_goog_hash=f"crc32c={other}")
    assert (refused.status, wrong(b"", f"*/{total}").status) == (400, 410)
    assert server.read("bucket", "o") == b"other"
