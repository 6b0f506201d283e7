import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import kinetic_payload
import kinetic_runner
from kinetic_runner.child.debugger import Listening, listening_in, listening_line

SOURCES = [str(Path(str(p.__file__)).parents[1]) for p in (kinetic_runner, kinetic_payload)]
START = f"import sys; sys.path[:0] = {SOURCES!r}\nfrom kinetic_runner.child import debugger\n"


def test_the_line_that_says_where_is_read_back() -> None:
    where = Listening(5678, '/somewhere/a "b" ü\n\udcff', "sub/folder")

    assert listening_in(listening_line(where) + "\n") == where
    assert "\n" not in listening_line(where)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "[kinetic] debugpy is listening on 0.0.0.0:1 {}",
        "[kinetic] debugpy is listening on 127.0.0.1:1",
        listening_line(Listening(1, "/x")) + "x",
        '[kinetic] debugpy is listening on 127.0.0.1:1 {"project": "/x", "folder": 7}',
        '[kinetic] debugpy is listening on 127.0.0.1:1 {"project": null}',
        "[kinetic] debugpy is listening on 127.0.0.1:1 []",
        listening_line(Listening(70000, "/x")),
    ],
)
def test_other_lines_announce_no_port(line: str) -> None:
    assert listening_in(line) is None


def test_a_missing_debugpy_is_said_with_advice() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{START}sys.modules['debugpy'] = None\ndebugger.listen(0, '/x')"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "debugpy is not installed where it runs" in done.stderr
    assert "requirements" in done.stderr


needs_debugpy = pytest.mark.skipif(
    importlib.util.find_spec("debugpy") is None, reason="debugpy is an extra"
)


@needs_debugpy
def test_it_listens_on_loopback_only_and_sigterm_ends_the_wait() -> None:
    code = (
        f"{START}from kinetic_runner.child.stop_requests import Stopping\nstopping = Stopping.install()\n"
        "try:\n"
        "    debugger.listen(0, '/x')\n"
        "    debugger.wait_for_client(lambda: stopping.stop_requested)\n"
        "finally: print('tidied', flush=True)\n"
        "stopping.check()"
    )
    job = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    try:
        listening = listening_in(job.stdout.readline())
        assert listening
        port = listening.port
        addresses = [
            line.split()[1].split(":")[0]
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            if Path(table).exists()
            for line in Path(table).read_text().splitlines()[1:]
            if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
        ]
        assert set(addresses) <= {"0100007F"}
        with socket.create_connection(("127.0.0.1", port)):
            pass
        job.send_signal(signal.SIGTERM)
        assert job.stdout.readline() == "tidied\n"
        assert job.wait(300) == 143
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.stdout.close()
        job.wait()


@needs_debugpy
def test_the_function_starts_when_a_client_is_ready() -> None:
    job = subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-c",
            f"{START}debugger.listen(0, '/x')\ndebugger.wait_for_client(lambda: False)",
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    try:
        listening = listening_in(job.stdout.readline())
        assert listening
        port = listening.port
        with socket.create_connection(("127.0.0.1", port)) as client:
            steps = [
                ("initialize", {"adapterID": "x"}, b'"command": "initialize"'),
                ("attach", {"justMyCode": False}, b'"initialized"'),
                ("configurationDone", {}, b'"command": "attach"'),
            ]
            for seq, (command, arguments, answer) in enumerate(steps, 1):
                body = {"seq": seq, "type": "request", "command": command, "arguments": arguments}
                data = json.dumps(body).encode()
                client.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                read_until(client, answer)
            assert "attached" in job.stdout.readline()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.stdout.close()
        job.wait()


def read_until(client: socket.socket, word: bytes) -> None:
    client.settimeout(300)
    seen = b""
    while word not in seen:
        piece = client.recv(4096)
        assert piece, seen
        seen += piece


@needs_debugpy
def test_a_swallowed_signal_still_ends_the_wait() -> None:
    code = (
        f"{START}debugger.listen(0, '/x')\n"
        "print('waits' if debugger.wait_for_client(lambda: True) else 'told to stop', flush=True)\n"
        "import os; os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "told to stop"
