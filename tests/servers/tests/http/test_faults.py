"""Faults on purpose and the request log, of a bucket server and a registry; the bucket server as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kinetic_servers.gcs import Fault, Faults, GcsProcess, GcsServer
from kinetic_servers.registry import RegistryServer

Ask = Callable[..., Any]
QUANTUM = 256 * 1024
UPLOADS = "/upload/storage/v1/b/bucket/o"
MEDIA = f"{UPLOADS}?uploadType=media&name="
OBJECTS = "/storage/v1/b/bucket/o"


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.001)


# --- Failures


def test_a_status_is_sent_as_often_as_the_fault_says_and_nothing_is_done(
    server: GcsServer, ask: Ask
) -> None:
    fault = server.faults.add(operation="objects.insert", status=503, times=2, retry_after=1)

    first = ask("POST", MEDIA + "o", b"data")
    assert (first.status, first.headers["retry-after"]) == (503, "1")
    assert first.data["error"]["errors"][0]["reason"] == "backendError"
    assert ask("POST", MEDIA + "o", b"data").status == 503
    assert server.names("bucket") == []
    assert ask("POST", MEDIA + "o", b"data").status == 200
    assert fault.hits == 2


def test_a_registrys_fault_hits_one_request_and_has_the_registrys_form(ask_of: Ask) -> None:
    with RegistryServer() as server:
        server.faults.add(path="/v2/*", status=429, code="TOOMANYREQUESTS", retry_after="7")
        server.faults.add(path="/other")
        failed, passed = (ask_of(server.endpoint, "GET", "/v2/") for _ in "12")

    assert (failed.status, failed.headers["retry-after"]) == (429, "7")
    assert failed.data["errors"][0]["code"] == "TOOMANYREQUESTS"
    assert passed.status == 200
    assert [each.headers["docker-distribution-api-version"] for each in (failed, passed)] == [
        "registry/2.0",
        "registry/2.0",
    ]


def test_a_connection_breaks_where_the_fault_says(server: GcsServer, ask: Ask) -> None:
    data = b"x" * 1_000_000
    ask("POST", MEDIA + "there", data)
    server.requests.clear()
    server.faults.add(name="there", reset="response", times=1)
    server.faults.add(name="there", reset="response", polite=True, at=1000, times=1)
    server.faults.add(name="before", reset="before")
    server.faults.add(name="request", reset="request")
    server.faults.add(name="after", reset="after")

    with pytest.raises((ConnectionResetError, IncompleteRead)):
        ask("GET", f"{OBJECTS}/there?alt=media")
    with pytest.raises(IncompleteRead) as short:
        ask("GET", f"{OBJECTS}/there?alt=media")
    assert len(short.value.partial) == 1000
    for name in ("before", "request", "after"):
        with pytest.raises((ConnectionError, BrokenPipeError)):
            ask("POST", MEDIA + name, data)
    # Only the response of the last one was lost.
    assert server.names("bucket") == ["after", "there"]
    moved = {one.name: one.bytes_in for one in server.requests if one.method == "POST"}
    assert moved == {"before": 0, "request": 500_000, "after": 1_000_000}


def test_whole_quanta_stay_when_the_connection_of_a_chunk_breaks(
    server: GcsServer, ask: Ask
) -> None:
    session = ask("POST", f"{UPLOADS}?uploadType=resumable&name=o").headers["location"]
    server.faults.add(operation="objects.insert.chunk", reset="request", times=1)
    data = b"x" * (4 * QUANTUM)

    with pytest.raises(ConnectionError):
        ask("PUT", session, data)
    asked = ask("PUT", session, Content_Range=f"bytes */{len(data)}")
    assert (asked.status, asked.headers["range"]) == (308, f"bytes=0-{2 * QUANTUM - 1}")


def test_a_delay_and_a_drip_lose_nothing(server: GcsServer, ask: Ask) -> None:
    data = b"x" * 20_000
    ask("POST", MEDIA + "o", data)
    server.faults.add(method="GET", delay=0.1, times=1)
    server.faults.add(method="GET", drip=100_000, after=1, times=1)
    server.faults.add(method="POST", drip=100_000)

    for request in (("GET", f"{OBJECTS}/o?alt=media"),) * 2 + (("POST", MEDIA + "o", data),):
        began = time.monotonic()
        got = ask(*request)
        assert got.body == data or got.data["size"] == "20000"
        assert time.monotonic() - began >= 0.1


def test_an_outage_begins_with_the_first_request_and_ends(server: GcsServer, ask: Ask) -> None:
    outage = Faults().outage(30)
    hit = [outage.strike(now) for now in (100.0, 110.0, 129.9, 130.0, 200.0)]
    assert (hit, outage.hits) == ([True, True, True, False, False], 3)

    server.faults.outage(60)
    assert ask("GET", OBJECTS).status == 503
    server.faults.clear()
    server.faults.outage(60, status=None)
    with pytest.raises(ConnectionError):
        ask("GET", OBJECTS)
    server.faults.clear()
    assert ask("GET", OBJECTS).status == 200


@pytest.mark.parametrize("at", [None, 100_000])
def test_a_held_request_waits_until_it_is_released(
    server: GcsServer, ask: Ask, at: int | None
) -> None:
    data = b"x" * 3_000_000
    fault = server.faults.add(name="held", held=True, at=at)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(ask, "POST", MEDIA + "held", data)
        wait_until(lambda: fault.hits)
        assert ask("POST", MEDIA + "other").status == 200
        assert (server.names("bucket"), held.done()) == (["other"], False)
        (logged,) = server.requests.matching(name="held")
        wait_until(lambda: logged.bytes_in >= (at or 0))
        assert logged.bytes_in < len(data)
        fault.release()
        assert held.result().status == 200
    assert ask("POST", MEDIA + "held").status == 200


def test_a_page_and_headers_replace_those_of_the_service(server: GcsServer, ask: Ask) -> None:
    server.faults.add(times=1, page="<html>", status=302, location="http://login.test/")
    server.faults.add(headers={"ETag": None, "X-Added": "1"})

    portal, passed = (ask("GET", OBJECTS) for _ in "12")
    assert (portal.status, portal.body) == (302, b"<html>")
    assert portal.headers["location"] == "http://login.test/"
    assert (passed.status, passed.headers["x-added"]) == (200, "1")


def test_an_endless_body_does_not_end(server: GcsServer) -> None:
    server.faults.add(endless=True)
    connection = HTTPConnection(server.host, timeout=100)
    connection.request("GET", OBJECTS)

    assert len(connection.getresponse().read(5_000_000)) == 5_000_000
    connection.close()


def test_random_faults_are_the_same_with_the_same_seed() -> None:
    def hits(seed: int) -> list[bool]:
        fault = Fault(probability=0.3, seed=seed, status=503)
        return [fault.strike(0.0) for _ in range(200)]

    assert hits(1) == hits(1) != hits(2)
    assert 30 < sum(hits(1)) < 90


def test_faults_hit_only_the_requests_that_they_name(server: GcsServer, ask: Ask) -> None:
    server.faults.add(name="logs/*", status=500)
    server.faults.add(bucket="other", status=500)
    server.faults.add(path="/storage/v2/*", status=500)
    server.faults.add(method="DELETE", operation="objects.delete", after=1, status=429, times=1)

    for name in ("logs/a", "a"):
        assert ask("POST", MEDIA + name).status == (500 if name == "logs/a" else 200)
    deleted = [ask("DELETE", f"{OBJECTS}/a").status for _ in range(3)]
    assert deleted == [204, 429, 404]


# --- The log


def test_the_log_has_each_request_and_its_result(server: GcsServer) -> None:
    before = time.time()
    # Not by Google's client, which also looks at the bucket in a thread of its own.
    connection = HTTPConnection(server.host, timeout=100)
    for method, path, body, headers in (
        ("POST", f"{MEDIA}a%2F%C3%BC&ifGenerationMatch=0", b"data", {}),
        ("GET", f"{OBJECTS}/a%2F%C3%BC?alt=media", None, {"Range": "bytes=1-2"}),
        ("DELETE", f"{OBJECTS}/none", None, {"Authorization": "Bearer hunter2"}),
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
    assert deletion.headers["authorization"] == "Bearer"
    assert "hunter2" not in repr(deletion)
    assert before <= upload.time <= download.time <= deletion.time <= time.time()
    assert server.requests.count(name="a/*", status=200) == 1
    assert server.requests.count(path="/upload/*") == 1
    assert (server.requests.bytes_in, server.requests.bytes_out >= 2) == (4, True)
    assert server.requests.lines[-1] == f"DELETE {OBJECTS}/none 404"
    server.requests.clear()
    assert len(server.requests) == 0


# --- Where it runs


def test_a_stopped_server_leaves_no_file_and_no_port(tmp_path: Path, ask_of: Ask) -> None:
    with GcsServer(folder=tmp_path) as server:
        server.create_bucket("bucket")
        endpoint = server.endpoint
        ask_of(endpoint, "POST", f"{UPLOADS}?uploadType=resumable&name=unfinished")
        (folder,) = tmp_path.iterdir()
        for _ in range(3):
            ask_of(endpoint, "POST", MEDIA + "o", b"y" * 1_000_000)
            assert [path.stat().st_size for path in folder.iterdir()] == [1_000_000]
        ask_of(endpoint, "DELETE", f"{OBJECTS}/o")
        assert list(folder.iterdir()) == []
        server.faults.add(delay=600)
        connection = HTTPConnection(server.host, timeout=100)
        connection.request("GET", OBJECTS)
        wait_until(lambda: server.requests.count(method="GET"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionError):
        connection.getresponse()
    connection.close()
    with pytest.raises(ConnectionError):
        ask_of(endpoint, "GET", OBJECTS)


def test_as_a_process_the_server_is_asked_over_http(ask_of: Ask) -> None:
    with GcsProcess("bucket", arguments=["--delay", "0.001"]) as server:
        server.create_bucket("second", location="EUROPE-WEST4")
        ask_of(server.endpoint, "POST", MEDIA.replace("bucket", "second") + "a%2Fo", b"data")
        logged = [(one.operation, one.status) for one in server.requests()]
        server.clear_requests()
        assert (server.requests(), server.read("second", "a/o")) == ([], b"data")
        assert ask_of(server.endpoint, "GET", "/storage/v1/b/second").data["location"] == (
            "EUROPE-WEST4"
        )

    assert logged[1:] == [("objects.insert", 200)]


def test_names_are_listed_page_by_page(server: GcsServer, ask: Ask) -> None:
    names = [f"a/{number} ü?%2F" for number in range(4)]
    for name in [*names, "b"]:
        ask("POST", MEDIA + quote(name))
    server.limit_pages(3)
    remote = GcsProcess()
    remote.endpoint = server.endpoint

    assert remote.names("bucket", "a/") == names
    assert server.requests.count(operation="objects.list") == 2


def test_as_a_process_the_server_ends_with_a_signal(tmp_path: Path, ask_of: Ask) -> None:
    command = [sys.executable, "-m", "kinetic_servers.gcs", "--folder", str(tmp_path)]
    process = subprocess.Popen([*command, "--bucket", "bucket"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    endpoint = process.stdout.readline().strip()
    assert ask_of(endpoint, "GET", OBJECTS).status == 200
    process.send_signal(signal.SIGINT)
    process.communicate()

    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_as_a_process_the_server_ends_with_the_process_that_started_it(
    tmp_path: Path, ask_of: Ask
) -> None:
    code = """
import os, sys
from kinetic_servers.gcs import GcsProcess
with GcsProcess("bucket", arguments=["--folder", sys.argv[1]]) as server:
    print(server.endpoint, flush=True)
    os._exit(1)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    died = subprocess.run(command, capture_output=True, text=True, check=False)
    endpoint = died.stdout.strip()

    wait_until(lambda: not list(tmp_path.iterdir()))
    with pytest.raises(ConnectionRefusedError):
        ask_of(endpoint, "GET", OBJECTS)
