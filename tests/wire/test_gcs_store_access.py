"""Who comes to a bucket, whether they may, and what they are told if not."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kinetic.testing import eventually
from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    InvalidRequestError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.stores.gcs import ExternalBucket, GcsStore, RetryPolicy, Service
from kinetic_payload.testing.gcs import EVERYONE, GcsServer, Tokens

QUICK = RetryPolicy(limit=100, first=0.01, longest=0.05)
WHO = "worker@test-project.iam.gserviceaccount.com"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def guarded() -> Iterator[GcsServer]:
    """A server that wants tokens."""
    with GcsServer(tokens=Tokens()) as server:
        server.create_bucket("bucket")
        yield server


def key_file(endpoint: str, folder: Path, who: str = WHO) -> Path:
    """Write a service account's key, as Application Default Credentials have it."""
    pem = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    found = {
        "type": "service_account",
        "client_email": who,
        "private_key": pem.decode(),
        "private_key_id": "1",
        "token_uri": f"{endpoint}/token",
    }
    path = folder / "application_default_credentials.json"
    path.write_text(json.dumps(found))
    return path


@pytest.fixture
def service(guarded: GcsServer, tmp_path: Path) -> Service:
    file = str(key_file(guarded.endpoint, tmp_path))
    return Service.from_environment(
        {"KINETIC_STORAGE_ENDPOINT": guarded.endpoint, "GOOGLE_APPLICATION_CREDENTIALS": file}
    )


@pytest.fixture
def store(service: Service) -> GcsStore:
    return GcsStore("bucket", service=service, retry=QUICK)


def test_application_default_credentials_open_a_bucket_without_a_project(store: GcsStore) -> None:
    store.write("o", b"data")

    assert store.read("o") == b"data"


def test_a_token_that_expired_is_renewed_once_for_all_threads(
    guarded: GcsServer, store: GcsStore
) -> None:
    store.write("o", b"data")
    assert guarded.tokens is not None
    guarded.tokens.expire()
    guarded.requests.clear()
    held = guarded.faults.add(operation="objects.get.media", times=16, held=True)

    with ThreadPoolExecutor(16) as pool:
        reading = pool.map(lambda _: store.read("o"), range(16))
        try:
            eventually(lambda: held.hits == 16)  # All of them with the old token.
        finally:
            held.release()
        assert set(reading) == {b"data"}

    assert guarded.requests.count(status=401) == 16
    assert len([one for one in guarded.requests if one.path == "/token"]) == 1


def test_a_token_that_expires_during_an_upload_does_not_end_it(
    guarded: GcsServer, store: GcsStore, tmp_path: Path
) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "source").write_bytes(data)
    tokens = guarded.tokens
    assert tokens is not None

    moved: list[int] = []

    def expire_once(size: int) -> None:
        moved.append(size)
        if len(moved) == 1:
            tokens.expire()

    store.upload("o", tmp_path / "source", progress=expire_once)

    assert guarded.read("bucket", "o") == data


@pytest.mark.parametrize("refusal", [401, 403])
def test_credentials_that_were_replaced_are_read_again_after_a_refusal(
    guarded: GcsServer, store: GcsStore, tmp_path: Path, refusal: int
) -> None:
    store.write("o", b"data")
    other = WHO.replace("worker", "other")
    guarded.allow("bucket", {other: {"storage.objects.get"}})
    assert guarded.tokens is not None
    if refusal == 403:
        with pytest.raises(StorePermissionError, match="worker@"):
            store.read("o")
    else:
        guarded.tokens.expire()

    key_file(guarded.endpoint, tmp_path, other)

    assert store.read("o") == b"data"


@pytest.mark.parametrize("anonymous", [False, True])
def test_one_401_is_tried_once_more_and_two_are_an_error(
    guarded: GcsServer, service: Service, gcs: GcsServer, anonymous: bool
) -> None:
    server = gcs if anonymous else guarded
    found = Service(gcs.endpoint, anonymous=True) if anonymous else service
    store = GcsStore("bucket", service=found, retry=QUICK)
    server.faults.add(operation="objects.insert*", status=401, times=1)
    store.write("o", b"data")

    server.faults.add(operation="objects.get*", status=401, times=2)
    with pytest.raises(CredentialsError):
        store.read("o")
    assert store.read("o") == b"data"


def test_a_login_that_is_over_is_told_at_once(gcs: GcsServer, tmp_path: Path) -> None:
    # This server gives no tokens: `invalid_grant`.
    file = str(key_file(gcs.endpoint, tmp_path))
    store = GcsStore("bucket", service=Service(gcs.endpoint, credentials_file=file))

    with pytest.raises(CredentialsError, match="invalid_grant") as caught:
        store.stat("o")

    assert "gcloud auth application-default login" in str(caught.value)


@pytest.mark.parametrize(
    "what",
    [
        {"reset": "before"},
        {"page": "<html><title>Sign in</title></html>"},
        {"page": "<html><title>Sign in</title></html>", "status": 403},
        {"page": ""},
        {"page": '{"access_to'},
    ],
    ids=str,
)
def test_a_token_endpoint_that_fails_for_a_moment_is_asked_again(
    guarded: GcsServer, store: GcsStore, what: dict[str, Any]
) -> None:
    guarded.faults.add(method="POST", times=4, **what)

    store.write("o", b"")

    assert guarded.names("bucket") == ["o"]


@pytest.mark.parametrize(
    ("act", "permission", "role"),
    [
        (lambda store: store.read("o"), "storage.objects.get", "objectViewer"),
        (lambda store: store.stat("o"), "storage.objects.get", "objectViewer"),
        (lambda store: list(store.list()), "storage.objects.list", "objectViewer"),
        (lambda store: store.write("new", b""), "storage.objects.create", "objectUser"),
        (lambda store: store.write("o", b""), "storage.objects.delete", "objectUser"),
        (lambda store: store.delete("o"), "storage.objects.delete", "objectUser"),
    ],
)
def test_a_missing_permission_is_named_with_the_command_that_grants_it(
    guarded: GcsServer,
    store: GcsStore,
    act: Callable[[GcsStore], object],
    permission: str,
    role: str,
) -> None:
    store.write("o", b"")
    every = {f"storage.objects.{what}" for what in ("get", "list", "create", "delete")}
    guarded.allow("bucket", {WHO: every - {permission}})

    with pytest.raises(StorePermissionError, match=re.escape(permission)) as caught:
        act(store)

    assert WHO in caught.value.message
    assert caught.value.hint is not None
    assert (
        f"gcloud storage buckets add-iam-policy-binding gs://bucket "
        f"--member=serviceAccount:{WHO} --role=roles/storage.{role}"
    ) in caught.value.hint


@pytest.mark.parametrize(
    "act",
    [
        lambda store, path: store.stat("o"),
        lambda store, path: store.read("o"),
        lambda store, path: store.download("o", path),
        lambda store, path: store.write("o", b""),
        lambda store, path: store.write("o", b"", if_generation=5),
        lambda store, path: store.upload("o", Path(sys.executable)),
        lambda store, path: list(store.list()),
        lambda store, path: list(store.folders()),
        lambda store, path: store.delete("o"),
        lambda store, path: store.renew("o", if_generation=1),
        lambda store, path: store.mark_folder("o"),
    ],
)
def test_a_bucket_that_is_not_there_is_told_and_how_to_make_it(
    gcs: GcsServer, tmp_path: Path, act: Callable[[GcsStore, Path], object]
) -> None:
    store = GcsStore("typo", service=Service(gcs.endpoint, anonymous=True), retry=QUICK)

    with pytest.raises(BucketNotFoundError, match="gs://typo") as caught:
        act(store, tmp_path / "target")

    assert "create it first" in str(caught.value)


def test_a_bucket_name_that_cannot_be_is_told(gcs: GcsServer) -> None:
    service = Service(gcs.endpoint, anonymous=True)

    with pytest.raises(InvalidRequestError, match="'Not_A_Bucket'"):
        GcsStore("Not_A_Bucket", service=service, retry=QUICK).stat("o")


def test_disabled_billing_is_told(gcs: GcsServer) -> None:
    gcs.disable_billing("bucket")
    service = Service(gcs.endpoint, anonymous=True)

    with pytest.raises(StoreError, match="billing is disabled") as caught:
        GcsStore("bucket", service=service, retry=QUICK).write("o", b"")

    assert "https://console.cloud.google.com/billing" in str(caught.value)


def test_a_credentials_file_that_is_none_is_named(gcs: GcsServer, tmp_path: Path) -> None:
    (tmp_path / "adc.json").write_text("{}")

    for file in ("adc.json", "missing.json"):
        service = Service(gcs.endpoint, credentials_file=str(tmp_path / file))
        with pytest.raises(CredentialsError, match=file):
            GcsStore("bucket", service=service).stat("o")


LOOK = """
import sys
from kinetic_payload.errors import KineticError
from kinetic_payload.stores.store import parse_location
from kinetic_payload.stores import open_bucket, open_store
try:
    if sys.argv[1] == "store":
        print(open_store(parse_location("gs://bucket")).stat("o"))
    else:
        print(open_bucket("bucket").stat("o"))
except KineticError as error:
    print(type(error).__name__, error)
"""


def look(environment: dict[str, str], *, what: str = "store") -> str:
    """Look for an object in a process with no other environment."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, what],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(
    os.path.exists("/sys/class/dmi/id/product_name")
    and "Google" in Path("/sys/class/dmi/id/product_name").read_text(),
    reason="a machine of Google's has credentials",
)
def test_no_credentials_are_told_after_one_look_for_a_metadata_server() -> None:
    # Takes connections and says nothing, like the metadata server where there is none.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        told = look({"GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"})

        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()

    assert told.startswith("CredentialsError")
    assert "gcloud auth application-default login" in told


def test_an_emulator_is_visited_without_credentials(gcs: GcsServer) -> None:
    assert look(gcs.environment) == "None\n"
    # As Go programs write it.
    assert look({"STORAGE_EMULATOR_HOST": gcs.endpoint.removeprefix("http://")}) == "None\n"


def test_a_login_by_gcloud_is_used_without_running_gcloud(
    guarded: GcsServer, tmp_path: Path
) -> None:
    key_file(guarded.endpoint, tmp_path)
    (tmp_path / "gcloud").write_text(f"#!/bin/sh\necho ran > {tmp_path}/ran\n")
    (tmp_path / "gcloud").chmod(0o755)

    told = look(
        {
            "CLOUDSDK_CONFIG": str(tmp_path),
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "KINETIC_STORAGE_ENDPOINT": guarded.endpoint,
        }
    )

    assert told == "None\n"
    assert not (tmp_path / "ran").exists()


def test_the_identity_of_a_machine_is_used(guarded: GcsServer) -> None:
    assert guarded.tokens is not None
    guarded.tokens.machine = WHO

    told = look(guarded.machine_environment | guarded.environment)

    assert told == "None\n"


def test_a_public_bucket_can_be_read_without_credentials(guarded: GcsServer) -> None:
    outside = {"KINETIC_STORAGE_ENDPOINT": guarded.endpoint, "NO_GCE_CHECK": "true"}

    assert "Anonymous caller does not have storage.objects" in look(outside, what="bucket")

    guarded.allow("bucket", {EVERYONE: {"storage.objects.get", "storage.objects.list"}})

    assert look(outside, what="bucket") == "None\n"
    assert look(outside).startswith("CredentialsError")


def test_foreign_names_are_what_they_are(gcs: GcsServer, tmp_path: Path) -> None:
    bucket = ExternalBucket("bucket", service=Service(gcs.endpoint, anonymous=True), retry=QUICK)
    GcsStore("bucket", service=bucket.service).mark_folder("folder")
    names = ["folder/", "folder/../up", "folder//odd", "other\x0bname"]
    for name in names[1:]:
        put(gcs, name, name.encode())

    assert [found.name for found in bucket.list("folder")] == names[:3]
    assert bucket.entries() == ["folder/", "other\x0bname"]
    for name in names[1:]:
        found = bucket.stat(name)
        assert found is not None
        bucket.download(name, tmp_path / "target")
        assert (tmp_path / "target").read_text() == name


def put(gcs: GcsServer, name: str, data: bytes) -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": gcs.endpoint}
    client = storage.Client("p", AnonymousCredentials(), client_options=options)
    client.bucket("bucket").blob(name).upload_from_string(data)


def certificate_file(folder: Path) -> Path:
    """Write a certificate of localhost that it signed itself, and its key."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    other = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
        .serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
        .add_extension(other, critical=False).sign(KEY, hashes.SHA256())
    )  # fmt: skip
    chain = folder / "chain.pem"
    chain.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain


def test_a_client_certificate_is_shown_where_the_environment_names_one(tmp_path: Path) -> None:
    chain = str(certificate_file(tmp_path))
    config = tmp_path / "certificate_config.json"
    workload = {"cert_path": chain, "key_path": chain}
    config.write_text(json.dumps({"version": 1, "cert_configs": {"workload": workload}}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    context.load_verify_locations(chain)
    context.verify_mode = ssl.CERT_REQUIRED
    shown: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while not shown:
                taken, _ = listening.accept()  # The first connection only asks whether it works.
                with (
                    taken,
                    suppress(OSError),
                    context.wrap_socket(taken, server_side=True) as wrapped,
                ):
                    shown.append(wrapped.getpeercert())
                    wrapped.recv(1 << 16)
                    wrapped.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        told = look(
            {
                "API_ENDPOINT_OVERRIDE": f"https://localhost:{listening.getsockname()[1]}",
                "GOOGLE_API_CERTIFICATE_CONFIG": str(config),
                "GOOGLE_API_USE_CLIENT_CERTIFICATE": "true",
                "NO_GCE_CHECK": "true",
                "REQUESTS_CA_BUNDLE": chain,
            },
            what="bucket",
        )
        thread.join()

    assert shown[0]
    assert told.startswith("StorePermissionError")


@pytest.mark.parametrize("of", ["the bucket", "tokens"])
def test_a_certificate_that_nobody_vouches_for_is_told_at_once(tmp_path: Path, of: str) -> None:
    chain = certificate_file(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def shake() -> None:
            taken, _ = listening.accept()
            with taken, pytest.raises(ssl.SSLError):
                context.wrap_socket(taken, server_side=True)

        thread = threading.Thread(target=shake)
        thread.start()
        place = f"https://localhost:{listening.getsockname()[1]}"
        service = Service(place, anonymous=True)
        if of == "tokens":
            file = key_file(place, tmp_path)
            service = Service("http://localhost:9", credentials_file=str(file))
        with pytest.raises(StoreUnavailableError, match="certificate is not trusted") as caught:
            GcsStore("bucket", service=service).stat("o")
        assert "captive portal" in str(caught.value.hint)
        assert "REQUESTS_CA_BUNDLE" in str(caught.value.hint)
        assert not caught.value.sent
        thread.join()
