"""The strict bucket server: faults on purpose, the request log, the server as a process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from urllib.parse import quote

import pytest
from google.cloud import storage

from kinetic_payload.testing.gcs import Fault, Faults, GcsProcess, GcsServer

QUANTUM = 256 * 1024
UPLOADS = "/upload/storage/v1/b/bucket/o"
MEDIA = f"{UPLOADS}?uploadType=media&name="
OBJECTS = "/storage/v1/b/bucket/o"


def ask(
    endpoint: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(endpoint.removeprefix("http://"), timeout=100)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()
    finally:
        connection.close()


# --- What goes wrong


def test_a_status_comes_as_often_as_it_should_and_nothing_is_done(server: GcsServer) -> None:
    fault = server.faults.add(operation="objects.insert", status=503, times=2, retry_after=1)

    first = ask(server.endpoint, "POST", MEDIA + "o", b"data")
    assert (first[0], first[1]["retry-after"]) == (503, "1")
    assert json.loads(first[2])["error"]["errors"][0]["reason"] == "backendError"
    assert ask(server.endpoint, "POST", MEDIA + "o", b"data")[0] == 503
    assert server.names("bucket") == []
    assert ask(server.endpoint, "POST", MEDIA + "o", b"data")[0] == 200
    assert fault.hits == 2


def test_googles_client_rides_out_what_passes(server: GcsServer, bucket: storage.Bucket) -> None:
    server.faults.add(operation="objects.insert*", status=503, times=1)
    server.faults.add(operation="objects.insert.chunk", reset="request", times=1)
    server.faults.add(operation="objects.get.media", reset="response", times=1)
    data = os.urandom(QUANTUM * 3)
    blob = bucket.blob("o", chunk_size=QUANTUM)

    blob.upload_from_file(io.BytesIO(data))

    assert blob.download_as_bytes() == data
    assert server.requests.count(operation="objects.insert.start") == 2
    assert server.requests.count(operation="objects.insert.status") >= 1


def test_a_connection_breaks_where_it_should(server: GcsServer) -> None:
    data = b"x" * 1_000_000
    ask(server.endpoint, "POST", MEDIA + "there", data)
    server.requests.clear()
    server.faults.add(name="there", reset="response", times=1)
    server.faults.add(name="there", reset="response", polite=True, at=1000, times=1)
    server.faults.add(name="before", reset="before")
    server.faults.add(name="request", reset="request")
    server.faults.add(name="after", reset="after")

    with pytest.raises((ConnectionResetError, IncompleteRead)):
        ask(server.endpoint, "GET", f"{OBJECTS}/there?alt=media")
    with pytest.raises(IncompleteRead) as short:
        ask(server.endpoint, "GET", f"{OBJECTS}/there?alt=media")
    assert len(short.value.partial) == 1000
    for name in ("before", "request", "after"):
        with pytest.raises((ConnectionError, BrokenPipeError)):
            ask(server.endpoint, "POST", MEDIA + name, data)
    # Only the answer of the last one was lost.
    assert server.names("bucket") == ["after", "there"]
    moved = {one.name: one.bytes_in for one in server.requests if one.method == "POST"}
    assert moved["before"] == 0
    assert moved["request"] == 500_000
    assert moved["after"] == 1_000_000


def test_half_a_chunk_stays_when_its_connection_breaks(server: GcsServer) -> None:
    _, headers, _ = ask(server.endpoint, "POST", f"{UPLOADS}?uploadType=resumable&name=o")
    path = headers["location"].removeprefix(server.endpoint)
    server.faults.add(operation="objects.insert.chunk", reset="request", times=1)
    data = b"x" * (4 * QUANTUM)

    with pytest.raises(ConnectionError):
        ask(server.endpoint, "PUT", path, data)
    status, headers, _ = ask(server.endpoint, "PUT", path, Content_Range=f"bytes */{len(data)}")
    assert (status, headers["range"]) == (308, f"bytes=0-{2 * QUANTUM - 1}")


def test_a_delay_and_a_drip_are_slow_but_whole(server: GcsServer) -> None:
    data = b"x" * 20_000
    ask(server.endpoint, "POST", MEDIA + "o", data)
    server.faults.add(method="GET", delay=0.1, times=1)
    server.faults.add(method="GET", drip=100_000, after=1, times=1)
    server.faults.add(method="POST", drip=100_000)

    for _ in range(2):
        began = time.monotonic()
        assert ask(server.endpoint, "GET", f"{OBJECTS}/o?alt=media")[2] == data
        assert time.monotonic() - began >= 0.1
    began = time.monotonic()
    assert ask(server.endpoint, "POST", MEDIA + "o", data)[0] == 200
    assert time.monotonic() - began >= 0.1


def test_an_outage_begins_with_the_first_request_and_ends() -> None:
    faults = Faults()
    outage = faults.outage(30)

    # Nobody asks for a while; then its clock runs.
    assert [outage.strike(now) for now in (100.0, 110.0, 129.9, 130.0, 200.0)] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert outage.hits == 3


def test_an_outage_is_for_everything(server: GcsServer) -> None:
    server.faults.outage(60)
    assert ask(server.endpoint, "GET", OBJECTS)[0] == 503
    server.faults.clear()
    server.faults.outage(60, status=None)
    with pytest.raises(ConnectionError):
        ask(server.endpoint, "GET", OBJECTS)
    server.faults.clear()
    assert ask(server.endpoint, "GET", OBJECTS)[0] == 200


def test_what_is_held_waits_until_it_is_released(server: GcsServer) -> None:
    fault = server.faults.add(name="held", held=True)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(ask, server.endpoint, "POST", MEDIA + "held")
        while not fault.hits:
            threading.Event().wait(0.001)
        assert ask(server.endpoint, "POST", MEDIA + "other")[0] == 200
        assert (server.names("bucket"), held.done()) == (["other"], False)
        fault.release()
        assert held.result()[0] == 200
    assert ask(server.endpoint, "POST", MEDIA + "held")[0] == 200


def test_chance_is_the_same_with_the_same_seed() -> None:
    def hits(seed: int) -> list[bool]:
        fault = Fault(probability=0.3, seed=seed, status=503)
        return [fault.strike(0.0) for _ in range(200)]

    assert hits(1) == hits(1) != hits(2)
    assert 30 < sum(hits(1)) < 90


def test_faults_are_for_the_requests_they_name(server: GcsServer) -> None:
    server.faults.add(name="logs/*", status=500)
    server.faults.add(bucket="other", status=500)
    server.faults.add(method="DELETE", operation="objects.delete", after=1, status=429, times=1)

    for name in ("logs/a", "a"):
        expected = 500 if name == "logs/a" else 200
        assert ask(server.endpoint, "POST", MEDIA + name, b"")[0] == expected
    deleted = [ask(server.endpoint, "DELETE", f"{OBJECTS}/a")[0] for _ in range(3)]
    assert deleted == [204, 429, 404]


def test_a_fault_with_no_such_parameter_is_refused(server: GcsServer) -> None:
    with pytest.raises(TypeError):
        server.faults.add(statuss=503)
    status, _, _ = ask(server.endpoint, "POST", "/_kinetic/faults", b'{"statuss": 503}')
    assert status == 400


# --- What was asked


def test_the_log_tells_what_was_asked_and_how_it_ended(server: GcsServer) -> None:
    before = time.time()
    # Not by Google's client, which also looks at the bucket in a thread of its own.
    connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
    for method, path, body, headers in (
        ("POST", f"{MEDIA}a%2F%C3%BC&ifGenerationMatch=0", b"data", {}),
        ("GET", f"{OBJECTS}/a%2F%C3%BC?alt=media", None, {"Range": "bytes=1-2"}),
        ("DELETE", f"{OBJECTS}/none", None, {}),
    ):
        connection.request(method, path, body, headers)
        connection.getresponse().read()
    connection.close()

    upload, download, deletion = server.requests
    assert (upload.method, upload.operation, upload.name) == ("POST", "objects.insert", "a/ü")
    assert upload.query["ifGenerationMatch"] == ["0"]
    assert (upload.status, upload.bytes_in) == (200, 4)
    assert upload.connection == download.connection
    assert (download.status, download.bytes_out, download.headers["range"]) == (206, 2, "bytes=1-2")
    assert (deletion.status, deletion.name) == (404, "none")
    assert before <= upload.time <= download.time <= deletion.time <= time.time()
    assert server.requests.count(name="a/*", status=200) == 1
    assert server.requests.bytes_in == 4
    assert server.requests.bytes_out >= 2
    server.requests.clear()
    assert len(server.requests) == 0


def test_a_thousand_requests_over_64_connections_are_all_answered(server: GcsServer) -> None:
    server.faults.add(delay=0.03)

    def work(thread: int) -> list[int]:
        connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
        statuses = []
        for number in range(16):
            connection.request("POST", f"{MEDIA}{thread}/{number}", b"x" * 4096)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)
        connection.close()
        return statuses

    with ThreadPoolExecutor(64) as pool:
        statuses = [status for found in pool.map(work, range(64)) for status in found]
    assert statuses == [200] * 1024
    assert len(server.names("bucket")) == 1024
    assert len({one.connection for one in server.requests}) <= 64


# --- Where it runs


def test_it_leaves_no_file_and_no_port_behind(tmp_path: Path) -> None:
    with GcsServer(folder=tmp_path) as server:
        server.create_bucket("bucket")
        ask(server.endpoint, "POST", MEDIA + "o", b"x" * 1_000_000)
        ask(server.endpoint, "POST", f"{UPLOADS}?uploadType=resumable&name=unfinished")
        (folder,) = tmp_path.iterdir()
        assert [path.stat().st_size for path in folder.iterdir()] == [1_000_000]
        for _ in range(3):
            ask(server.endpoint, "POST", MEDIA + "o", b"y" * 1_000_000)
        assert len(list(folder.iterdir())) == 1
        ask(server.endpoint, "DELETE", f"{OBJECTS}/o")
        assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        ask(server.endpoint, "GET", OBJECTS)


def test_it_stops_while_requests_wait() -> None:
    with GcsServer() as server:
        server.create_bucket("bucket")
        server.faults.add(delay=600)
        connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
        connection.request("GET", OBJECTS)
        while not len(server.requests):
            threading.Event().wait(0.001)
    with pytest.raises(ConnectionError):
        connection.getresponse()
    connection.close()


def test_as_a_process_it_is_told_over_http_what_should_go_wrong() -> None:
    with GcsProcess("bucket", "second", arguments=["--delay", "0.001"]) as server:
        server.add_fault(operation="objects.insert", status=503, times=1)
        for _ in range(2):
            ask(server.endpoint, "POST", "/upload/storage/v1/b/second/o?uploadType=media&name=o")
        assert [(one.operation, one.status) for one in server.requests()] == [
            ("objects.insert", 503),
            ("objects.insert", 200),
        ]
        server.clear_requests()
        server.clear_faults()
        assert server.requests() == []
        assert json.loads(ask(server.endpoint, "GET", "/_kinetic/health")[2]) == {"status": "ok"}


def test_as_a_process_it_shows_what_is_in_its_buckets() -> None:
    names = [f"a/{number:04} ü?%2F" for number in range(1100)]  # More than a page.
    with GcsProcess() as server:
        server.create_bucket("bucket", location="EUROPE-WEST4")
        upload = "/upload/storage/v1/b/bucket/o?uploadType=media&name="
        for name in [*names, "b"]:
            ask(server.endpoint, "POST", upload + quote(name, safe=""), name.encode())
        location = json.loads(ask(server.endpoint, "GET", "/storage/v1/b/bucket")[2])["location"]
        listed, read = server.names("bucket", "a/"), server.read("bucket", names[-1])

    assert location == "EUROPE-WEST4"
    assert listed == names
    assert read == names[-1].encode()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_as_a_process_it_ends_with_the_signal(ending: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kinetic_payload.testing.gcs", "--folder", str(tmp_path)]
    fault = json.dumps({"status": 500})
    process = subprocess.Popen(
        [*command, "--bucket", "bucket", "--fault", fault], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    endpoint = process.stdout.readline().strip()
    assert ask(endpoint, "GET", OBJECTS)[0] == 500
    process.send_signal(ending)
    process.communicate()

    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_as_a_process_it_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    code = """
import os, sys
from kinetic_payload.testing.gcs import GcsProcess
with GcsProcess("bucket", arguments=["--folder", sys.argv[1]]) as server:
    print(server.endpoint, flush=True)
    os._exit(1)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    died = subprocess.run(command, capture_output=True, text=True, check=False)
    endpoint = died.stdout.strip()

    until = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        threading.Event().wait(0.01)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        ask(endpoint, "GET", OBJECTS)


def test_memory_stays_flat_while_a_large_object_goes_up_and_down() -> None:
    def peak(pid: int) -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 1024 * 1024

    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux says how much memory another process has used")
    with GcsProcess("bucket") as server:
        before = peak(server.pid)
        size = 200 * 1024 * 1024
        connection = HTTPConnection(server.endpoint.removeprefix("http://"), timeout=100)
        connection.request("POST", MEDIA + "o", chunks(), {"Content-Length": str(size)})
        answer = connection.getresponse()
        assert (answer.status, answer.read() != b"") == (200, True)
        connection.request("GET", f"{OBJECTS}/o?alt=media")
        answer = connection.getresponse()
        received = 0
        while data := answer.read(1024 * 1024):
            received += len(data)
        connection.close()
        assert received == size
        assert peak(server.pid) - before < 40 * 1024 * 1024


def test_the_other_fakes_need_no_web_server() -> None:
    code = "import kinetic_payload.testing, sys; sys.exit('aiohttp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
