"""Faults on purpose and the request log, of a bucket server and a registry; the bucket server as a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from kinetic_servers.gcs import GcsServer

Ask = Callable[..., Any]
UPLOADS = "/upload/storage/v1/b/bucket/o"
MEDIA = f"{UPLOADS}?uploadType=media&name="
OBJECTS = "/storage/v1/b/bucket/o"


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.001)


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
