"""`kinetic dashboard` as a server: whom it answers, and how it begins and ends. `tests/browser` looks at its pages."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from urllib.parse import urlsplit

import pytest

from .conftest import Laptop


@pytest.fixture
def dashboard(laptop: Laptop) -> Iterator[tuple[Popen[str], str]]:
    process = laptop.start("dashboard", "--no-browser", "--port", "0")
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.kill()


def code_of(address: str, method: str = "GET", **headers: str) -> int:
    request = urllib.request.Request(address, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_only_its_own_pages_may_ask_the_dashboard(
    laptop: Laptop, dashboard: tuple[Popen[str], str]
) -> None:
    process, address = dashboard
    job = laptop.submit("wait")
    parts = urlsplit(address)
    origin, cancel = f"http://{parts.netloc}", f"{address}jobs/{job}/cancel"

    assert parts.hostname == "127.0.0.1"
    assert code_of(address) == 200
    assert code_of(f"{address}jobs/{job}", Host=f"localhost:{parts.port}") == 200
    refused = [
        (origin, {}),
        (f"{origin}/jobs/{job}", {}),
        (f"{origin}/{'x' * 32}/", {}),
        (f"{origin}/open/x", {}),
        (f"{origin}/%ff/", {}),
        (address, {"Host": "evil.example"}),
        (address, {"Host": f"evil.example:{parts.port}"}),
        (address, {"Origin": "http://evil.example"}),
        (cancel, {"method": "POST"}),
        (cancel, {"method": "POST", "Origin": "null"}),
        (cancel, {"method": "POST", "Origin": "http://127.0.0.1:1"}),
        (cancel, {"method": "POST", "Origin": "http://evil.example"}),
        (f"{origin}/jobs/{job}/cancel", {"method": "POST", "Origin": origin}),
    ]
    for where, how in refused:
        assert code_of(where, **how) == 403, (where, how)
    websocket = {"Upgrade": "websocket", "Connection": "Upgrade"}
    assert code_of(origin, **websocket) == 403
    assert code_of(f"{address}?page={'9' * 5000}&status=UNKNOWN") == 200
    assert code_of(f"{address}jobs/{job}?host=x") == 200
    assert code_of(cancel) in (404, 405)
    assert code_of(f"{address}jobs/cpu-x-20260101-000000-0a1b2c3") == 404
    assert code_of(f"{address}cluster") == 404
    status = json.loads(laptop.kinetic("jobs", "status", job, "--json").stdout)["status"]
    assert status in ("PENDING", "RUNNING")

    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == "Ctrl-C ends the dashboard; jobs go on.\n"


def test_a_cluster_that_cannot_be_reached_costs_its_own_parts_of_the_page(laptop: Laptop) -> None:
    job = laptop.submit("answer", "1")
    del laptop.environment["KINETIC_BACKEND"]
    laptop.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(laptop.home / "none.json")
    where = ("--project", "none-1", "--cluster", "none")
    process = laptop.start("dashboard", "--no-browser", "--port", "0", *where)
    assert process.stdout is not None
    address = process.stdout.readline().strip()

    def page(name: str) -> str:
        with urllib.request.urlopen(f"{address}{name}", timeout=100) as answer:
            return str(answer.read().decode())

    assert page("cluster").count("hx-get=") == 3
    for part in ("status", "pools", "costs"):
        assert page(f"cluster/{part}").startswith("<p class=error>")
    assert job in page("")

    process.terminate()


def test_the_first_page_has_the_newest_jobs_and_then_all_are_counted(laptop: Laptop) -> None:
    job = laptop.submit("answer", "1")
    assert laptop.kinetic("jobs", "result", job, "--no-cleanup").returncode == 0
    store, head = laptop.home / "store", job.rsplit("-", 3)[0]
    for number in range(150):
        copy = f"{head}-20260101-{number:06}-{number:07x}"
        (store / copy).mkdir()
        for name in ("handle.json", "outcome.json"):
            text = (store / job / name).read_text().replace(job, copy)
            (store / copy / name).write_text(re.sub(r'(created_at": ?")20', r"\g<1>19", text))
    process = laptop.start("dashboard", "--no-browser", "--port", "0")
    assert process.stdout is not None
    address, page = process.stdout.readline().strip(), ""

    while "<b>151</b>" not in page:
        with urllib.request.urlopen(address, timeout=60) as answer:
            page = answer.read().decode()
        if "Looking…" not in page:
            assert page.count('href="jobs/') == 100
            assert f"jobs/{job}" in page

    process.terminate()


def test_ctrl_c_ends_a_dashboard_that_waits_for_a_cluster(laptop: Laptop) -> None:
    del laptop.environment["KINETIC_BACKEND"]
    user = dict.fromkeys(("client_id", "client_secret", "refresh_token"), "x")
    credentials = laptop.home / "user.json"
    credentials.write_text(json.dumps({"type": "authorized_user", **user}))
    laptop.environment["GOOGLE_APPLICATION_CREDENTIALS"] = str(credentials)
    where = ("--project", "none-1", "--cluster", "none")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        laptop.environment["HTTPS_PROXY"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = laptop.start("dashboard", "--no-browser", "--port", "0", *where)
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        with socket.create_connection(("127.0.0.1", address.port or 0)) as page:
            asked = f"GET {address.path}cluster/status HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n"
            page.sendall(asked.encode())
            page.settimeout(2)
            with pytest.raises(TimeoutError):
                page.recv(1)

            process.send_signal(signal.SIGINT)

            assert process.wait(10) == 0
    assert process.stderr is not None
    assert process.stderr.read() == "Ctrl-C ends the dashboard; jobs go on.\n"


def test_a_dashboard_that_cannot_begin_says_why(laptop: Laptop, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = laptop.kinetic("dashboard", "--no-browser", "--port", port)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"Port {port} of this machine cannot be used: Address already in use." in refused.stderr
    assert "--port 0" in refused.stderr
    assert laptop.kinetic("dashboard", "--port", "70000").returncode == 2

    (tmp_path / "uvicorn.py").write_text("raise ImportError('none', name='uvicorn')\n")
    laptop.environment["PYTHONPATH"] = str(tmp_path)
    without = laptop.kinetic("dashboard", "--no-browser")
    assert (without.returncode, without.stdout) == (1, "")
    assert "this Python does not have uvicorn" in without.stderr
    assert "python -m pip install starlette uvicorn" in without.stderr
