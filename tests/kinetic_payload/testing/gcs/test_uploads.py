"""The strict bucket server: uploads in one request and in many, checked, resumed, refused."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import socket
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import google_crc32c
import pytest
from google.api_core import exceptions
from google.cloud import storage

from kinetic_payload.testing.gcs import GcsServer

QUANTUM = 256 * 1024
CONTENT = bytes(range(256)) * 4 * 1024  # Four quanta.
UPLOADS = "/upload/storage/v1/b/bucket/o"


class Answered:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def data(self) -> Any:
        return json.loads(self.body)


def ask(
    server: GcsServer, method: str, path: str, body: bytes | None = b"", **headers: str
) -> Answered:
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    found = {name.lower(): value for name, value in answer.getheaders()}
    answered = Answered(answer.status, found, answer.read())
    connection.close()
    return answered


class Session:
    """A resumable upload, request by request."""

    def __init__(self, server: GcsServer, name: str = "o", query: str = "", **headers: str) -> None:
        self._server = server
        path = f"{UPLOADS}?uploadType=resumable&name={quote(name)}{query}"
        self.begun = ask(server, "POST", path, b"", **headers)
        address = urlsplit(self.begun.headers.get("location", ""))
        self.path = f"{address.path}?{address.query}"

    def put(self, data: bytes, content_range: str | None = None, **headers: str) -> Answered:
        if content_range is not None:
            headers["Content_Range"] = f"bytes {content_range}"
        return ask(self._server, "PUT", self.path, data, **headers)


def crc32c(data: bytes) -> str:
    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


# --- In one request


def test_a_media_upload_is_the_body_as_it_is(server: GcsServer) -> None:
    path = f"{UPLOADS}?uploadType=media&name=a%2Fb"
    made = ask(server, "POST", path, CONTENT, Content_Type="text/x-test")

    assert made.status == 200
    assert made.data["contentType"] == "text/x-test"
    assert made.data["crc32c"] == crc32c(CONTENT)
    assert server.read("bucket", "a/b") == CONTENT


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_a_multipart_upload_ends_at_its_boundary_and_nowhere_else(
    server: GcsServer, size: int
) -> None:
    # What looks like the end, over and over, and just before the real one.
    content = (b"\r\n--edg\r\n--" * (size // 11 + 1))[: max(size - 6, 0)] + b"\r\n--ed"[:size]
    body = b"--edge\r\ncontent-type: application/json\r\n\r\n"
    body += json.dumps({"name": "ü", "metadata": {"a": "b"}}).encode()
    body += b"\r\n--edge\r\nContent-Type: text/x-test\r\n\r\n" + content + b"\r\n--edge--\r\n"
    kind = 'multipart/related; boundary="edge"'
    made = ask(server, "POST", f"{UPLOADS}?uploadType=multipart", body, Content_Type=kind)

    assert made.data["name"] == "ü"
    assert made.data["contentType"] == "text/x-test"
    assert made.data["metadata"] == {"a": "b"}
    assert server.read("bucket", "ü") == content


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
def test_a_malformed_multipart_upload_stores_nothing(server: GcsServer, body: bytes) -> None:
    path, kind = f"{UPLOADS}?uploadType=multipart&name=o", "multipart/related; boundary=edge"

    assert ask(server, "POST", path, body, Content_Type=kind).status == 400
    assert ask(server, "POST", path, body, Content_Type="text/plain").status == 400
    assert server.names("bucket") == []


def test_bytes_that_are_not_what_was_promised_are_not_stored(
    server: GcsServer, bucket: storage.Bucket
) -> None:
    for promise in ({"crc32c": crc32c(b"other")}, {"md5_hash": md5(b"other")}):
        blob = bucket.blob("o")
        for name, value in promise.items():
            setattr(blob, name, value)
        with pytest.raises(exceptions.BadRequest, match="doesn't match calculated"):
            blob.upload_from_string(b"data", checksum=None)
    media = f"{UPLOADS}?uploadType=media&name=o"
    for header in (f"crc32c={crc32c(b'other')}", f"crc32c={crc32c(b'data')},md5={md5(b'other')}"):
        assert ask(server, "POST", media, b"data", x_goog_hash=header).status == 400
        session = Session(server)
        assert session.put(b"data", x_goog_hash=header).status == 400
        assert session.put(b"data").status == 410
    assert server.names("bucket") == []
    right = f"crc32c={crc32c(b'data')},md5={md5(b'data')}"
    assert ask(server, "POST", media, b"data", x_goog_hash=right).status == 200


def test_without_md5_objects_have_none_and_yet_are_checked() -> None:
    with GcsServer(md5=False) as server:
        server.create_bucket("bucket")
        media = f"{UPLOADS}?uploadType=media&name=o"
        wrong, right = (f"md5={md5(data)}" for data in (b"other", CONTENT))
        assert ask(server, "POST", media, CONTENT, x_goog_hash=wrong).status == 400
        made = ask(server, "POST", media, CONTENT, x_goog_hash=right)
        assert made.status == 200
        assert "md5Hash" not in made.data


def test_a_precondition_is_also_checked_at_the_end_of_an_upload(server: GcsServer) -> None:
    path = f"{UPLOADS}?uploadType=media&name=o&ifGenerationMatch=0"
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", "8")
    connection.endheaders(b"late")
    while not server.requests.matching(name="o"):
        pass
    assert ask(server, "POST", path, b"early").status == 200
    connection.send(b"late")

    assert connection.getresponse().status == 412
    assert server.read("bucket", "o") == b"early"
    connection.close()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(server: GcsServer) -> None:
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=100) as connection:
        head = (
            f"POST {UPLOADS}?uploadType=media&name=o HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        )
        connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"data")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.read("bucket", "o") == b"data"


# --- In many


@pytest.mark.parametrize("size", [0, 1, QUANTUM, 5 * QUANTUM + 3])
@pytest.mark.parametrize("known", [True, False])
def test_googles_client_uploads_chunk_by_chunk(
    bucket: storage.Bucket, size: int, known: bool
) -> None:
    data = os.urandom(size)
    blob = bucket.blob("o", chunk_size=QUANTUM)
    blob.metadata = {"key": "value"}
    blob.upload_from_file(io.BytesIO(data), size=size if known else None, if_generation_match=0)

    found = bucket.get_blob("o")
    assert found is not None
    assert (found.metadata, found.crc32c) == ({"key": "value"}, crc32c(data))
    assert found.download_as_bytes() == data


def test_an_upload_says_how_far_it_is_and_goes_on_there(server: GcsServer) -> None:
    session = Session(server, "ü/o", X_Upload_Content_Type="text/x-test")
    total = len(CONTENT)

    asked = session.put(b"", "*/*")
    assert (asked.status, asked.headers.get("range")) == (308, None)
    sent = session.put(CONTENT[:QUANTUM], f"0-{QUANTUM - 1}/*")
    assert (sent.status, sent.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    asked = session.put(b"", f"*/{total}")
    assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    assert server.names("bucket") == []
    done = session.put(CONTENT[QUANTUM:], f"{QUANTUM}-{total - 1}/{total}")
    assert (done.status, done.data["contentType"]) == (200, "text/x-test")
    assert server.read("bucket", "ü/o") == CONTENT
    # Whoever missed that answer can have it again, and nothing is written twice.
    for again in (session.put(b"", f"*/{total}"), session.put(CONTENT, f"0-{total - 1}/{total}")):
        assert (again.status, again.data["generation"]) == (200, done.data["generation"])


def test_bytes_that_are_there_already_are_passed_over(server: GcsServer) -> None:
    session = Session(server)
    total = len(CONTENT)
    session.put(CONTENT[: 2 * QUANTUM], f"0-{2 * QUANTUM - 1}/{total}")

    assert session.put(CONTENT[QUANTUM:], f"{QUANTUM}-{total - 1}/{total}").status == 200
    assert server.read("bucket", "o") == CONTENT


def test_only_whole_quanta_of_a_chunk_that_is_not_the_last_are_kept(server: GcsServer) -> None:
    session = Session(server)

    odd = session.put(CONTENT[: QUANTUM + 100], f"0-{QUANTUM + 99}/*")
    assert (odd.status, odd.headers["range"]) == (308, f"bytes=0-{QUANTUM - 1}")
    small = session.put(CONTENT[QUANTUM : QUANTUM + 100], f"{QUANTUM}-{QUANTUM + 99}/*")
    assert small.status == 400
    assert "equal or greater than 262144" in small.data["error"]["message"]


@pytest.mark.parametrize(
    ("data", "content_range"),
    [
        (CONTENT[QUANTUM:], f"{QUANTUM}-{len(CONTENT) - 1}/{len(CONTENT)}"),
        (CONTENT, f"0-{len(CONTENT)}/{len(CONTENT) + 1}"),
        (CONTENT, f"0-{len(CONTENT) - 1}/{len(CONTENT) - 1}"),
        (CONTENT, f"5-3/{len(CONTENT)}"),
        (CONTENT, "nonsense"),
    ],
    ids=["gap", "longer", "beyond", "backwards", "nonsense"],
)
def test_bytes_that_do_not_fit_are_refused(
    server: GcsServer, data: bytes, content_range: str
) -> None:
    session = Session(server)

    assert session.put(data, content_range).status == 400
    assert session.put(b"", f"*/{len(CONTENT)}").headers.get("range") is None
    assert session.put(CONTENT).status == 200


def test_an_upload_is_as_long_as_it_was_announced(server: GcsServer) -> None:
    session = Session(server, X_Upload_Content_Length=str(len(CONTENT)))

    assert session.put(b"data", "0-3/4").status == 400
    assert session.put(CONTENT).status == 200


def test_what_arrived_before_a_connection_broke_is_kept(server: GcsServer) -> None:
    session = Session(server)
    total = len(CONTENT)
    host = server.endpoint.removeprefix("http://")
    connection = HTTPConnection(host, timeout=100)
    connection.putrequest("PUT", session.path)
    connection.putheader("Content-Length", str(total))
    connection.putheader("Content-Range", f"bytes 0-{total - 1}/{total}")
    connection.endheaders(CONTENT[: 2 * QUANTUM + 5])
    while (kept := session.put(b"", f"*/{total}").headers.get("range")) is None:
        pass
    connection.close()

    while kept != f"bytes=0-{2 * QUANTUM - 1}":
        kept = session.put(b"", f"*/{total}").headers.get("range")
    rest = session.put(CONTENT[2 * QUANTUM :], f"{2 * QUANTUM}-{total - 1}/{total}")
    assert rest.status == 200
    assert server.read("bucket", "o") == CONTENT


def test_a_client_that_follows_no_308_gets_200(server: GcsServer) -> None:
    session = Session(server)
    answer = session.put(CONTENT[:QUANTUM], f"0-{QUANTUM - 1}/*", X_GUploader_No_308="yes")

    assert answer.status == 200
    assert answer.headers["x-http-status-code-override"] == "308"
    assert answer.headers["range"] == f"bytes=0-{QUANTUM - 1}"
    assert answer.body == b""


def test_an_expired_or_unknown_upload_is_not_found(server: GcsServer) -> None:
    for status in (404, 410):
        session = Session(server)
        server.expire_uploads(status=status)
        assert session.put(CONTENT).status == status
    unknown = f"{UPLOADS}?uploadType=resumable&upload_id=none"
    assert ask(server, "PUT", unknown, CONTENT).status == 404


def test_the_precondition_of_a_resumable_upload_holds_when_it_begins_and_when_it_ends(
    server: GcsServer,
) -> None:
    session = Session(server, query="&ifGenerationMatch=0")
    session.put(CONTENT[:QUANTUM], f"0-{QUANTUM - 1}/*")
    assert ask(server, "POST", f"{UPLOADS}?uploadType=media&name=o", b"other").status == 200
    total = len(CONTENT)

    assert session.put(CONTENT[QUANTUM:], f"{QUANTUM}-{total - 1}/{total}").status == 412
    assert server.read("bucket", "o") == b"other"
    assert Session(server, query="&ifGenerationMatch=0").begun.status == 412
    found = server.objects("bucket")[0]
    assert Session(server, query=f"&ifGenerationMatch={found.generation}").begun.status == 200
