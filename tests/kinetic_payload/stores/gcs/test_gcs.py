"""The bucket store without a network: names, checksums, transient errors, messages."""

from __future__ import annotations

import errno
import os
import ssl
import subprocess
import sys
from email.utils import formatdate
from pathlib import Path

import google_crc32c
import pytest
import requests
import urllib3.exceptions
from google.auth.exceptions import RefreshError, TransportError
from google.oauth2.credentials import Credentials

from kinetic_payload.errors import (
    ObjectNotFoundError,
    StoreError,
    StorePermissionError,
)
from kinetic_payload.http.clock import ServiceClock
from kinetic_payload.http.session import NoResponseError, no_response
from kinetic_payload.stores import open_store
from kinetic_payload.stores.gcs import Bucket, GcsStore, Service, checksums
from kinetic_payload.stores.gcs.download import full_disk_translated
from kinetic_payload.stores.gcs.errors import BY_CODE, ResponseError
from kinetic_payload.stores.gcs.retry import is_transient
from kinetic_payload.stores.gcs.translation import refusal
from kinetic_payload.stores.store import Location


def test_checksums_are_encoded_as_google_does() -> None:
    assert checksums.encoded(google_crc32c.value(b"hello world")) == "yZRlqg=="
    assert checksums.from_header("md5=x,crc32c=yZRlqg==") == checksums.decoded("yZRlqg==")
    assert checksums.from_header("md5=x") is checksums.decoded("?") is None


def answered(code: int, reason: str = "", message: str = "") -> Exception:
    return BY_CODE.get(code, ResponseError)(code, message, reasons=[reason])


DISTRUST = urllib3.exceptions.SSLError(ssl.SSLCertVerificationError("certificate verify failed"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((answered(code), True) for code in (408, 429, 500, 502, 503, 504)),
        *((answered(code), False) for code in (400, 401, 403, 404, 410, 412, 416, 501)),
        (answered(403, "rateLimitExceeded"), True),
        (answered(403, "forbidden"), False),
        (no_response(ConnectionRefusedError()), True),
        (no_response(urllib3.exceptions.SSLError("unexpected end")), True),
        (no_response(urllib3.exceptions.ProtocolError("broken")), True),
        (no_response(urllib3.exceptions.LocationParseError("x")), False),
        (no_response(DISTRUST), False),
        (TransportError(DISTRUST), False),
        (TransportError(requests.ConnectionError()), True),
        (RefreshError("invalid_grant"), False),
        (RefreshError("internal_failure", retryable=True), True),
        (RefreshError(TransportError(requests.ConnectionError())), True),
        (NoResponseError("bytes are missing"), True),
        (OSError(28, "No space left on device"), False),
        (ValueError(), False),
    ],
)
def test_only_transient_errors_are_retried(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected


# Those of the strict server are in tests/wire.
@pytest.mark.parametrize(
    ("code", "message", "kind", "told"),
    [
        (403, "Request is prohibited by organization's policy.", StorePermissionError, "prohibited"),
        (404, "No such object: bucket/bucket", ObjectNotFoundError, "does not exist"),
        (501, "Not Implemented", StoreError, "Not Implemented (501)"),
    ],
)  # fmt: skip
def test_a_refusal_becomes_an_error_with_the_next_step(
    code: int, message: str, kind: type[Exception], told: str
) -> None:
    error = refusal(ResponseError(code, message), "bucket", "list objects")

    assert type(error) is kind
    assert told in str(error)


def test_a_slow_response_does_not_change_the_clock_that_a_fast_one_set() -> None:
    clock = ServiceClock()

    def answered_at(told: float, asked: float, now: float) -> float:
        clock.note(formatdate(told, usegmt=True), asked, now)
        assert clock.ahead is not None
        return clock.ahead

    assert answered_at(1040, asked=1000, now=1040) == 20.5  # All that is known: within 20 s.
    assert answered_at(1041, asked=1041, now=1042) == 0
    assert answered_at(1080, asked=1042, now=1080) == 0
    assert answered_at(1110, asked=1103, now=1105) == 6.5  # The other one is a minute old.
    clock.note("yesterday", 1105, 1105)
    clock.note(None, 1105, 1105)
    assert clock.ahead == 6.5


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Service()),
        ({"STORAGE_EMULATOR_HOST": "localhost:1"}, Service("http://localhost:1", anonymous=True)),
        ({"KINETIC_STORAGE_ENDPOINT": "https://other/"}, Service("https://other")),
        (
            {"KINETIC_STORAGE_ENDPOINT": "https://other", "STORAGE_EMULATOR_HOST": "x"},
            Service("https://other"),
        ),
    ],
)
def test_the_environment_chooses_the_service(
    environment: dict[str, str], expected: Service
) -> None:
    assert Service.from_environment(environment) == expected


def test_the_universe_of_the_credentials_chooses_the_address() -> None:
    credentials = Credentials("token", universe_domain="example.com")  # type: ignore[no-untyped-call]

    assert Service().address(credentials) == "https://storage.example.com"
    assert Service("http://other").address(credentials) == "http://other"


def test_a_location_opens_as_a_bucket_without_a_request() -> None:
    store = open_store(Location("gs", "bucket/some/prefix"))

    assert isinstance(store, GcsStore)
    assert store.location == Location("gs", "bucket/some/prefix")
    assert store.concurrency > 1
    with pytest.raises(StoreError, match="memory:1"):
        open_store(Location("memory", "1"))


def test_a_bucket_opens_without_clients_of_google_cloud() -> None:
    code = "import sys, kinetic_payload.stores.gcs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert "google.auth.transport.requests" in loaded
    assert not loaded & {
        "google.api_core",
        "google.cloud.storage",
        "google.protobuf",
        "opentelemetry",
    }


@pytest.mark.parametrize(
    ("place", "where"),
    [(Path("/data/o"), "at /data/o"), (None, "in the folder of temporary files, ")],
)
def test_the_error_for_a_full_disk_names_the_disk(place: Path | None, where: str) -> None:
    bucket = Bucket("bucket", service=Service(anonymous=True))

    refused = pytest.raises(StoreError, match=f"no room for 'o' of gs://bucket {where}")
    with refused, full_disk_translated(bucket, "o", place):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_error_for_a_failed_connection_shows_the_innermost_cause() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    error = no_response(urllib3.exceptions.ProtocolError("Connection aborted.", reset))

    assert error.reason == f"[Errno {errno.ECONNRESET}] Connection reset by peer"
