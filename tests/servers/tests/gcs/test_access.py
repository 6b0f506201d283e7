"""The strict bucket server: tokens, permissions, billing, in the words of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.oauth2.credentials import Credentials

from kinetic_servers.gcs import GcsServer, Tokens

READER = "reader@test-project.iam.gserviceaccount.com"
VIEWING = ("storage.objects.get", "storage.objects.list")


@pytest.fixture
def server() -> Iterator[GcsServer]:
    with GcsServer(tokens=Tokens()) as running:
        running.create_bucket("bucket")
        yield running


def client_of(server: GcsServer, credentials: Any) -> storage.Client:
    options = {"api_endpoint": server.endpoint}
    return storage.Client("test-project", credentials, client_options=options)


def bucket_of(server: GcsServer, principal: str) -> storage.Bucket:
    assert server.tokens is not None
    return client_of(server, Credentials(server.tokens.issue(principal))).bucket("bucket")


def test_a_missing_permission_is_named(server: GcsServer) -> None:
    bucket_of(server, "owner").blob("o").upload_from_string(b"data")
    server.allow("bucket", {READER: VIEWING})
    bucket = bucket_of(server, READER)

    assert bucket.blob("o").download_as_bytes() == b"data"
    assert [blob.name for blob in bucket.list_blobs()] == ["o"]
    blob = bucket.blob("new")
    for permission, act in (
        ("storage.objects.create", lambda: blob.upload_from_string(b"data")),
        ("storage.objects.create", blob.create_resumable_upload_session),
        ("storage.objects.create", lambda: bucket.copy_blob(bucket.blob("o"), bucket, "new")),
        ("storage.objects.delete", lambda: bucket.blob("o").delete()),
        ("storage.objects.update", lambda: bucket.blob("o").patch()),
        ("storage.buckets.get", bucket.reload),
        ("storage.buckets.delete", bucket.delete),
    ):
        words = f"{READER} does not have {permission} access to the Google Cloud Storage "
        with pytest.raises(exceptions.Forbidden, match=words):
            act()
    assert server.names("bucket") == ["o"]


def test_replacing_an_object_needs_the_permission_to_delete_it(server: GcsServer) -> None:
    server.allow("bucket", {READER: ["storage.objects.create", *VIEWING]})
    blob = bucket_of(server, READER).blob("o")
    blob.upload_from_string(b"first")

    for act in (
        lambda: blob.upload_from_string(b"second"),
        blob.create_resumable_upload_session,
    ):
        with pytest.raises(exceptions.Forbidden, match=r"storage\.objects\.delete"):
            act()
    assert server.read("bucket", "o") == b"first"


def test_a_missing_object_is_forbidden_without_the_permission_to_list(server: GcsServer) -> None:
    server.allow("bucket", {READER: ["storage.objects.get"]})
    with pytest.raises(exceptions.Forbidden, match=r"storage\.objects\.list"):
        bucket_of(server, READER).blob("nothing").download_as_bytes()
    server.allow("bucket", {READER: VIEWING})
    with pytest.raises(exceptions.NotFound):
        bucket_of(server, READER).blob("nothing").download_as_bytes()
