"""The strict bucket server: tokens, permissions, billing, in the words of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import google.auth
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import InvalidOperation, RefreshError
from google.cloud import storage
from google.oauth2.credentials import Credentials

from kinetic_servers.gcs import EVERYONE, GcsServer, Tokens
from kinetic_servers.gke.google_identity import write_key_file

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


def test_a_service_account_gets_a_token_and_a_new_one_when_it_expired(
    server: GcsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = write_key_file(tmp_path / "key.json", key, READER, server.endpoint)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    credentials, project = google.auth.default(
        scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
    )
    assert project == "test-project"
    blob = client_of(server, credentials).bucket("bucket").blob("o")

    blob.upload_from_string(b"data")
    tokens = server.requests.count(operation="token")
    assert tokens >= 1
    assert server.tokens is not None
    server.tokens.expire()
    assert blob.download_as_bytes() == b"data"
    assert server.requests.count(operation="token") > tokens
    assert server.requests.count(operation="objects.get.media", status=401) == 1
    assert {one.headers["authorization"] for one in server.requests.matching(name="o")} == {
        "Bearer"
    }


def test_an_invalid_or_expired_token_is_refused(server: GcsServer, tmp_path: Path) -> None:
    assert server.tokens is not None
    expired = server.tokens.issue(READER, lifetime=-1)
    for token in (expired, "made up"):
        bucket = client_of(server, Credentials(token)).bucket("bucket")
        with pytest.raises((exceptions.Unauthorized, RefreshError)):
            bucket.blob("o").upload_from_string(b"data")
    assert server.names("bucket") == []


def test_a_request_without_a_token_is_refused_with_the_permission(server: GcsServer) -> None:
    for path, permission in (
        ("o", "storage.objects.list"),
        ("o/x?alt=media", "storage.objects.get"),
    ):
        connection = HTTPConnection(server.host, timeout=100)
        connection.request("GET", f"/storage/v1/b/bucket/{path}")
        answer = connection.getresponse()
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        assert f"Anonymous caller does not have {permission} access" in answer.read().decode()
        connection.close()
    # Google's client would fetch a new token, and has nowhere to fetch one from.
    nobody = client_of(server, AnonymousCredentials()).bucket("bucket")
    with pytest.raises(InvalidOperation):
        nobody.blob("o").upload_from_string(b"data")


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


def test_a_public_bucket_needs_no_token(server: GcsServer) -> None:
    bucket_of(server, "owner").blob("o").upload_from_string(b"data")
    server.allow("bucket", {EVERYONE: VIEWING})

    nobody = client_of(server, AnonymousCredentials()).bucket("bucket")
    assert nobody.blob("o").download_as_bytes() == b"data"
    with pytest.raises(InvalidOperation):
        nobody.blob("o").upload_from_string(b"other")


def test_a_missing_bucket_is_not_found_with_a_token_only(server: GcsServer) -> None:
    bucket = bucket_of(server, READER).client.bucket("nothing")
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        bucket.blob("o").download_as_bytes()
    # A caller without a token does not learn whether it exists.
    nobody = client_of(server, AnonymousCredentials()).bucket("nothing")
    with pytest.raises(InvalidOperation):
        nobody.blob("o").download_as_bytes()


def test_the_environment_makes_clients_send_tokens(server: GcsServer) -> None:
    with GcsServer() as open_to_all:
        assert open_to_all.environment == {"STORAGE_EMULATOR_HOST": open_to_all.endpoint}
    # `STORAGE_EMULATOR_HOST` would make clients come without credentials.
    assert server.environment == {"KINETIC_STORAGE_ENDPOINT": server.endpoint}
