from __future__ import annotations

import io
import ssl

import pytest
from eager import eager
from file_server import FileServer, running_file_server

from kinetic_images.downloads import Downloader, DownloadFile
from kinetic_images.errors import DownloadError, DownloadLoginError, DownloadUnavailableError
from kinetic_payload.http.retry import RetryPolicy

DATA = bytes(range(256)) * 4000
SECRET = "s3cr3t"
EAGER = eager()


def a_downloader(login: str | None = None, policy: RetryPolicy = EAGER) -> Downloader:
    return Downloader(authorization=lambda _: login, environ={}, policy=policy)


def a_sink(stream: io.BytesIO | None = None) -> DownloadFile:
    return DownloadFile(
        stream or io.BytesIO(), lambda _: None, most=1 << 30, too_large=DownloadError("")
    )


def fetched(url: str, begun: bytes = b"", login: str | None = None) -> bytes:
    stream = io.BytesIO(begun)
    a_downloader(login).fetch(url, a_sink(stream), what="numpy 2.0")
    return stream.getvalue()


def test_a_broken_connection_is_continued_where_it_broke(index: FileServer) -> None:
    url = index.add("/a.whl", DATA)
    index.cut = [300_000, 10, 400_000]

    assert fetched(url) == DATA
    ranges = [headers.get("range") for _, _, headers in index.requests]
    assert ranges == [None, "bytes=300000-", "bytes=300010-", "bytes=700010-"]


def test_a_signed_address_takes_the_place_of_that_of_the_lock(index: FileServer) -> None:
    signed = index.add("/a.whl?signature=x", DATA)
    locked = signed.partition("?")[0]
    stream = io.BytesIO()

    downloader = Downloader(addresses={locked: signed}, environ={}, policy=EAGER)
    downloader.fetch(locked, a_sink(stream), what="numpy 2.0")

    assert stream.getvalue() == DATA


@pytest.mark.parametrize("cuts", [[1] * 50, []], ids=["breaks after each byte", "drips"])
def test_a_download_slower_than_the_least_rate_is_an_error(
    index: FileServer, cuts: list[int]
) -> None:
    url = index.add("/a.whl", DATA[:50])
    index.cut, index.drip = cuts, 0.1
    policy = RetryPolicy(limit=0.5)

    with pytest.raises(DownloadUnavailableError, match=r"only \d+ bytes in \d s"):
        a_downloader(policy=policy).fetch(url, a_sink(), what="numpy 2.0")


def test_a_download_that_had_all_bytes_already_is_complete(index: FileServer) -> None:
    assert fetched(index.add("/a.whl", DATA), begun=DATA) == DATA


def test_without_the_requested_range_all_of_it_is_sent_again(index: FileServer) -> None:
    url = index.add("/a.whl", DATA)
    index.answers = [(206, {"Content-Range": f"bytes 7-9/{len(DATA)}"}, b"xyz")]
    assert fetched(url, DATA[:1000]) == DATA

    index.ranges, index.cut = False, [5000]
    assert fetched(url) == DATA


def test_a_server_that_asks_for_a_pause_gets_it(index: FileServer) -> None:
    url = index.add("/a.whl", DATA)
    index.answers = [(429, {"Retry-After": "7"}, b""), (429, {"Retry-After": "9999"}, b"")]
    pauses: list[float] = []
    downloader = a_downloader(policy=RetryPolicy(pause=pauses.append))

    downloader.fetch(url, a_sink(), what="numpy 2.0")

    assert pauses == [7.0, 30.0]


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (401, DownloadLoginError, "credentials"),
        (403, DownloadLoginError, "credentials"),
        (404, DownloadError, "KINETIC_REBUILD=1"),
        (410, DownloadError, "KINETIC_REBUILD=1"),
        (418, DownloadError, "address of the index"),
        (503, DownloadUnavailableError, "network"),
    ],
)
def test_a_refusal_names_package_and_host_and_no_secret(
    index: FileServer, status: int, kind: type[DownloadError], hint: str
) -> None:
    index.answers = [(status, {}, b"")] * 999
    url = f"http://user:{SECRET}@127.0.0.1:{index.port}/a.whl?signature={SECRET}"

    with pytest.raises(kind) as error:
        fetched(url, login=f"Basic {SECRET}")

    text = str(error.value)
    assert "numpy 2.0" in text
    assert f"127.0.0.1:{index.port}" in text
    assert hint in text
    assert SECRET not in text + repr(error.value)
    assert error.value.__cause__ is None


def test_a_server_that_is_not_there_is_an_error_without_the_address() -> None:
    url = f"http://127.0.0.1:9/a.whl?x={SECRET}"
    with pytest.raises(
        DownloadUnavailableError, match=r"127\.0\.0\.1:9: .*tried for 60 s"
    ) as error:
        fetched(url)

    assert SECRET not in str(error.value)


def test_credentials_are_sent_to_their_server_only(index: FileServer) -> None:
    index.required = "Bearer t0ken"
    with running_file_server() as other:
        target = other.add("/stored.whl", DATA)
        first = index.add("/same.whl", b"")
        index.answers = [(302, {"Location": "/there.whl"}, b""), (302, {"Location": target}, b"")]

        assert fetched(first, login="Bearer t0ken") == DATA

    assert [headers.get("authorization") for _, _, headers in index.requests] == [
        "Bearer t0ken"
    ] * 2
    assert [headers.get("authorization") for _, _, headers in other.requests] == [None]


@pytest.mark.parametrize(
    "location", ["/a.whl", "ftp://example.org/x", "file:///etc/passwd", "http://[::1"]
)
def test_a_redirect_that_leads_nowhere_is_an_error(index: FileServer, location: str) -> None:
    index.answers = [(302, {"Location": location}, b"")] * 20

    with pytest.raises(DownloadError, match="redirects"):
        fetched(index.url("/a.whl"))


def test_a_certificate_that_is_not_trusted_is_named_with_the_host() -> None:
    trustme = pytest.importorskip("trustme", reason="it needs kinetic-servers")
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)

    with running_file_server(tls) as server:
        url = server.add("/a.whl", DATA)
        with pytest.raises(DownloadUnavailableError, match=r"certificate of 127.* is not trusted"):
            fetched(url)


@pytest.mark.parametrize("status", [200, 400, 403, 404, 405, 501])
def test_the_size_is_asked_without_a_transfer_and_may_be_refused(
    index: FileServer, status: int
) -> None:
    url = index.add("/a.whl", DATA)
    index.answers = [] if status == 200 else [(status, {}, b"")]

    assert a_downloader().size(url, what="numpy 2.0") == (len(DATA) if status == 200 else None)
    assert [method for method, _, _ in index.requests] == ["HEAD"]
    assert fetched(url) == DATA
