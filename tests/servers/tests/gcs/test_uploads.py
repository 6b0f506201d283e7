"""The strict bucket server: uploads in one request and in many, checked, resumed, refused."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from kinetic_servers.gcs import GcsServer

QUANTUM = 256 * 1024
CONTENT = bytes(range(256)) * 4 * 1024  # Four quanta.
Ask = Callable[..., Any]
UPLOADS = "/upload/storage/v1/b/bucket/o"


class Session:
    """A resumable upload, request by request."""

    def __init__(self, ask: Ask, name: str = "o", query: str = "", **headers: str) -> None:
        self._ask = ask
        path = f"{UPLOADS}?uploadType=resumable&name={quote(name)}{query}"
        self.begun = ask("POST", path, **headers)
        address = urlsplit(self.begun.headers.get("location", ""))
        self.path = f"{address.path}?{address.query}"

    def put(self, data: bytes, content_range: str | None = None, **headers: str) -> Any:
        if content_range is not None:
            headers["Content_Range"] = f"bytes {content_range}"
        return self._ask("PUT", self.path, data, **headers)


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


# --- In one request


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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no boundary at all",
        b"--edge\r\n\r\n{}\r\n--edge--",
        b"--edge\r\n\r\n{}\r\n--edge\r\n\r\nbegun",
        b"--edge\r\n\r\n{no json\r\n--edge\r\n\r\nx\r\n--edge--",
    ],
)
def test_a_malformed_multipart_upload_stores_nothing(
    server: GcsServer, body: bytes, ask: Ask
) -> None:
    path, kind = f"{UPLOADS}?uploadType=multipart&name=o", "multipart/related; boundary=edge"

    assert ask("POST", path, body, Content_Type=kind).status == 400
    assert ask("POST", path, body, Content_Type="text/plain").status == 400
    assert server.names("bucket") == []


def test_bytes_with_another_checksum_are_not_stored(
    server: GcsServer, bucket: storage.Bucket, ask: Ask
) -> None:
    for promise in ({"crc32c": crc32c(b"other")}, {"md5_hash": md5(b"other")}):
        blob = bucket.blob("o")
        for name, value in promise.items():
            setattr(blob, name, value)
        with pytest.raises(exceptions.BadRequest, match="doesn't match calculated"):
            blob.upload_from_string(b"data", checksum=None)
    media = f"{UPLOADS}?uploadType=media&name=o"
    for header in (f"crc32c={crc32c(b'other')}", f"crc32c={crc32c(b'data')},md5={md5(b'other')}"):
        assert ask("POST", media, b"data", x_goog_hash=header).status == 400
        session = Session(ask)
        assert session.put(b"data", x_goog_hash=header).status == 400
        assert session.put(b"data").status == 410
    assert server.names("bucket") == []
    right = f"crc32c={crc32c(b'data')},md5={md5(b'data')}"
    assert ask("POST", media, b"data", x_goog_hash=right).status == 200


def test_a_precondition_is_also_checked_at_the_end_of_an_upload(
    server: GcsServer, ask: Ask
) -> None:
    path = f"{UPLOADS}?uploadType=media&name=o&ifGenerationMatch=0"
    connection = HTTPConnection(server.host, timeout=100)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", "8")
    connection.endheaders(b"late")
    while not server.requests.matching(name="o"):
        pass
    assert ask("POST", path, b"early").status == 200
    connection.send(b"late")

    assert connection.getresponse().status == 412
    assert server.read("bucket", "o") == b"early"
    connection.close()


# --- In many


def test_an_upload_reports_its_offset_and_continues_there(server: GcsServer, ask: Ask) -> None:
    session = Session(ask, "ü/o", X_Upload_Content_Type="text/x-test")
    total = len(CONTENT)

    asked = session.put(b"", "*/*")
    assert (asked.status, asked.headers.get("range")) == (308, None)
    sent = session.put(CONTENT[:QUANTUM], f"0-{QUANTUM - 1}/*")
    assert (sent.status, sent.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    asked = session.put(b"", f"*/{total}")
    assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert server.names("bucket") == []
    session.put(CONTENT[QUANTUM : 3 * QUANTUM], f"{QUANTUM}-{3 * QUANTUM - 1}/*")
    # Bytes that arrived before are skipped.
    done = session.put(CONTENT[2 * QUANTUM :], f"{2 * QUANTUM}-{total - 1}/{total}")
    assert (done.status, done.data["contentType"]) == (200, "text/x-test")
    assert server.read("bucket", "ü/o") == CONTENT
    # The response is repeated, and nothing is written twice.
    for again in (session.put(b"", f"*/{total}"), session.put(CONTENT, f"0-{total - 1}/{total}")):
        assert (again.status, again.data["generation"]) == (200, done.data["generation"])


def test_only_whole_quanta_of_a_chunk_that_is_not_the_last_are_kept(ask: Ask) -> None:
    session = Session(ask)

    odd = session.put(CONTENT[: QUANTUM + 100], f"0-{QUANTUM + 99}/*")
    assert (odd.status, odd.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    small = session.put(CONTENT[QUANTUM : QUANTUM + 100], f"{QUANTUM}-{QUANTUM + 99}/*")
    assert small.status == 400
    assert "equal or greater than 262144" in small.data["error"]["message"]


def test_the_precondition_of_a_resumable_upload_holds_when_it_begins_and_when_it_ends(
    server: GcsServer, ask: Ask
) -> None:
    session = Session(ask, query="&ifGenerationMatch=0")
    session.put(CONTENT[:QUANTUM], f"0-{QUANTUM - 1}/*")
    assert ask("POST", f"{UPLOADS}?uploadType=media&name=o", b"other").status == 200
    total = len(CONTENT)

    assert session.put(CONTENT[QUANTUM:], f"{QUANTUM}-{total - 1}/{total}").status == 412
    assert server.read("bucket", "o") == b"other"
    assert Session(ask, query="&ifGenerationMatch=0").begun.status == 412
    found = server.objects("bucket")[0]
    assert Session(ask, query=f"&ifGenerationMatch={found.generation}").begun.status == 200
