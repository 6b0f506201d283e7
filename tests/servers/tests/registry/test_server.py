from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from kinetic_images.registry.oci import OCI_MANIFEST, digest_of
from kinetic_servers.registry import RegistryServer


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def ask(server: RegistryServer, method: str, path: str, **more: Any) -> urllib3.BaseHTTPResponse:
    url = path if path.startswith("http") else f"http://{server.host}{path}"
    return urllib3.request(method, url, retries=False, redirect=False, **more)


def codes(answer: urllib3.BaseHTTPResponse) -> list[str]:
    return [each["code"] for each in answer.json()["errors"]]


def test_an_older_address_of_an_upload_is_refused(server: RegistryServer) -> None:
    first = ask(server, "POST", "/v2/kn/image/blobs/uploads/").headers["Location"]
    ask(server, "PATCH", first, body=b"content")

    again = ask(server, "PUT", f"{first}&digest={digest_of(b'content')}")
    assert (again.status, codes(again)) == (400, ["BLOB_UPLOAD_INVALID"])


def test_a_piece_at_another_position_is_refused(server: RegistryServer) -> None:
    location = ask(server, "POST", "/v2/kn/image/blobs/uploads/").headers["Location"]

    answer = ask(server, "PATCH", location, body=b"x", headers={"Content-Range": "5-5"})
    assert answer.status == 416


def test_a_server_for_whole_uploads_refuses_pieces() -> None:
    with RegistryServer(chunked=False) as server:
        location = ask(server, "POST", "/v2/kn/image/blobs/uploads/").headers["Location"]
        assert ask(server, "PATCH", location, body=b"x").status == 405


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/kn/image/manifests/1", 404, "NAME_UNKNOWN"),
        ("GET", "/v2/kn/image/manifests/a%2Fb", 400, "TAG_INVALID"),
        ("PUT", "/v2/kn/image/manifests/1", 400, "MANIFEST_INVALID"),
        ("DELETE", "/v2/kn/image/manifests/1", 404, "MANIFEST_UNKNOWN"),
        ("GET", "/v2/kn/image/blobs/sha256:0", 400, "DIGEST_INVALID"),
        ("GET", f"/v2/kn/image/blobs/{digest_of(b'')}", 404, "BLOB_UNKNOWN"),
        ("DELETE", f"/v2/kn/image/blobs/{digest_of(b'')}", 404, "BLOB_UNKNOWN"),
        ("PUT", "/v2/kn/image/blobs/uploads/x?digest=y", 404, "BLOB_UPLOAD_UNKNOWN"),
        ("POST", f"/v2/kn/image/blobs/{digest_of(b'')}", 405, "UNSUPPORTED"),
        ("GET", f"/_blobs/kn/image/{digest_of(b'')}", 403, "DENIED"),
        ("GET", "/else", 404, "NAME_INVALID"),
    ],
)
def test_refusals_have_the_codes_of_the_specification(
    server: RegistryServer, method: str, path: str, status: int, code: str
) -> None:
    answer = ask(server, method, path)

    assert (answer.status, codes(answer)) == (status, [code])


def test_malformed_manifests_are_refused(server: RegistryServer) -> None:
    for data in (b"{", b"[]", b'{"schemaVersion": 1}', b'{"schemaVersion":2,"mediaType":"x"}'):
        headers = {"Content-Type": OCI_MANIFEST}
        answer = ask(server, "PUT", "/v2/kn/image/manifests/1", body=data, headers=headers)
        assert codes(answer) == ["MANIFEST_INVALID"]
