"""Credentials, permissions, certificates and addresses of a bucket, and their errors."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

from kinetic.testing import eventually
from kinetic_payload.errors import (
    BucketNotFoundError,
    CredentialsError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from kinetic_payload.stores.gcs import GcsStore, Service
from kinetic_servers.gcs import EVERYONE, GcsServer, Tokens
from kinetic_servers.gke.google_identity import write_key_file

from .conftest import QUICK

ACCOUNT = "worker@test-project.iam.gserviceaccount.com"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def guarded() -> Iterator[GcsServer]:
    """A server that requires tokens."""
    with GcsServer(tokens=Tokens()) as server:
        server.create_bucket("bucket")
        yield server


def key_file(endpoint: str, folder: Path, email: str = ACCOUNT) -> Path:
    """Write a service account's key, as Application Default Credentials have it."""
    path = folder / "application_default_credentials.json"
    return write_key_file(path, KEY, email, endpoint)


@pytest.fixture
def service(guarded: GcsServer, tmp_path: Path) -> Service:
    file = str(key_file(guarded.endpoint, tmp_path))
    return Service.from_environment(
        {"KINETIC_STORAGE_ENDPOINT": guarded.endpoint, "GOOGLE_APPLICATION_CREDENTIALS": file}
    )


@pytest.fixture
def store(service: Service) -> GcsStore:
    return GcsStore("bucket", service=service, retry=QUICK)


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
    other = ACCOUNT.replace("worker", "other")
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
def test_one_401_is_retried_and_two_are_an_error(
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


def test_an_expired_login_is_an_error_at_once(gcs: GcsServer, tmp_path: Path) -> None:
    # This server gives no tokens: `invalid_grant`.
    file = str(key_file(gcs.endpoint, tmp_path))
    store = GcsStore("bucket", service=Service(gcs.endpoint, credentials_file=file))

    with pytest.raises(CredentialsError, match="invalid_grant") as caught:
        store.stat("o")

    assert "gcloud auth application-default login" in str(caught.value)


def test_a_token_request_is_retried_after_a_transient_failure(
    guarded: GcsServer, store: GcsStore
) -> None:
    for what in (
        {"reset": "before"},
        {"page": "<html>Sign in</html>", "status": 403},
        {"page": ""},
        {"page": '{"access_to'},
    ):
        fault = guarded.faults.add(method="POST", times=4, **what)
        assert guarded.tokens is not None
        guarded.tokens.expire()

        store.write("o", b"")

        assert fault.hits == 4, what


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
    guarded.allow("bucket", {ACCOUNT: every - {permission}})

    with pytest.raises(StorePermissionError, match=re.escape(permission)) as caught:
        act(store)

    assert ACCOUNT in caught.value.message
    assert caught.value.hint is not None
    assert (
        f"gcloud storage buckets add-iam-policy-binding gs://bucket "
        f"--member=serviceAccount:{ACCOUNT} --role=roles/storage.{role}"
    ) in caught.value.hint


def test_a_missing_bucket_is_an_error_of_every_operation(gcs: GcsServer, tmp_path: Path) -> None:
    store = GcsStore("typo", service=Service(gcs.endpoint, anonymous=True), retry=QUICK)

    for act in (
        lambda: store.stat("o"),
        lambda: store.read("o"),
        lambda: store.download("o", tmp_path / "target"),
        lambda: store.write("o", b""),
        lambda: store.write("o", b"", if_generation=5),
        lambda: store.upload("o", Path(sys.executable)),
        lambda: list(store.list()),
        lambda: list(store.folders()),
        lambda: store.delete("o"),
        lambda: store.renew("o", if_generation=1),
        lambda: store.mark_folder("o"),
    ):
        with pytest.raises(BucketNotFoundError, match="gs://typo") as caught:
            act()
        assert "buckets create" in str(caught.value)


def test_disabled_billing_is_an_error_with_its_address(gcs: GcsServer) -> None:
    gcs.disable_billing("bucket")
    service = Service(gcs.endpoint, anonymous=True)

    with pytest.raises(StoreError, match="billing is disabled") as caught:
        GcsStore("bucket", service=service, retry=QUICK).write("o", b"")

    assert "https://console.cloud.google.com/billing" in str(caught.value)


def test_an_invalid_credentials_file_is_named(gcs: GcsServer, tmp_path: Path) -> None:
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
def test_missing_credentials_are_an_error_after_one_request_to_a_metadata_server() -> None:
    # Accepts connections and never responds, as where there is no metadata server.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        printed = look({"GCE_METADATA_IP": f"127.0.0.1:{silent.getsockname()[1]}"})

        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()

    assert printed.startswith("CredentialsError")
    assert "gcloud auth application-default login" in printed


def test_a_login_by_gcloud_is_used_without_running_gcloud(
    guarded: GcsServer, tmp_path: Path
) -> None:
    key_file(guarded.endpoint, tmp_path)
    (tmp_path / "gcloud").write_text(f"#!/bin/sh\necho ran > {tmp_path}/ran\n")
    (tmp_path / "gcloud").chmod(0o755)

    printed = look(
        {
            "CLOUDSDK_CONFIG": str(tmp_path),
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "KINETIC_STORAGE_ENDPOINT": guarded.endpoint,
        }
    )

    assert printed == "None\n"
    assert not (tmp_path / "ran").exists()


def test_a_public_bucket_can_be_read_without_credentials(guarded: GcsServer) -> None:
    outside = {"KINETIC_STORAGE_ENDPOINT": guarded.endpoint, "NO_GCE_CHECK": "true"}

    assert "Anonymous caller does not have storage.objects" in look(outside, what="bucket")

    guarded.allow("bucket", {EVERYONE: {"storage.objects.get", "storage.objects.list"}})

    assert look(outside, what="bucket") == "None\n"
    assert look(outside).startswith("CredentialsError")


@pytest.mark.parametrize("of", ["the bucket", "tokens"])
def test_an_untrusted_certificate_is_an_error_without_retries(tmp_path: Path, of: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
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
