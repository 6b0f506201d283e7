"""What a blocking call prints: the streams of the job, progress bars and unfinished lines."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

STREAMS = """
import ctypes, kinetic, os, subprocess, sys, time

@kinetic.run(accelerator="cpu")
def streams():
    for number in range(3):
        print("out", number, flush=True)
        print("err", number, file=sys.stderr, flush=True)
        time.sleep(0.2)
    os.write(2, b"descriptor\\n")
    subprocess.run(["sh", "-c", "echo program >&2"])
    ctypes.CDLL(None).perror(b"C")
    os.write(1, b"begun \\xc3")
    print("warning", file=sys.stderr, flush=True)
    time.sleep(0.2)
    os.write(1, b"\\xa9")
    print(", ended \\x10\\x02 \\x10")

streams()
"""
OUT = ["out 0", "out 1", "out 2", "begun é, ended \x10\x02 \x10"]
ERR = ["err 0", "err 1", "err 2", "descriptor", "program", "C", "warning"]


def test_stdout_and_stderr_of_a_job_stay_apart_live_and_in_its_stored_log(project: Any) -> None:
    project.write("main.py", STREAMS)
    ran = project.run("main.py")
    submitted, *lines, done = ran.stderr.splitlines()
    job_id = submitted.removeprefix("kinetic: submitted ")
    stored = project.cli("jobs", "logs", job_id)

    assert ran.stdout.splitlines() == stored.stdout.splitlines() == OUT
    for errors in (lines, stored.stderr.splitlines()):
        assert [line.partition(": ")[0] for line in errors] == ERR
    both = project.execute("sh", "-c", f"{sys.executable} -m kinetic_cli jobs logs {job_id} 2>&1")
    assert sorted(both.stdout.splitlines()[:6:2]) == OUT[:3]
    assert done.startswith("kinetic: done in ")


BAR = """
import kinetic, sys, time

@kinetic.run(accelerator="cpu")
def bar():
    print("Loading", end=" ", flush=True)
    for _ in range(100):
        print(end=".", flush=True)
        time.sleep(0.02)
    print(" loaded")
    for percent in range(0, 101, 10):
        print(f"\\r{percent:3}%", end="", file=sys.stderr, flush=True)
        time.sleep(0.25)
    print(file=sys.stderr)

bar()
"""


def test_an_unfinished_line_is_shown_at_once_and_a_bar_leaves_its_last_state(project: Any) -> None:
    project.write("main.py", BAR)
    process = project.start("main.py")
    seen = process.stdout.buffer.read1(1000) if process.stdout else b""
    at = time.monotonic()
    out, err = process.communicate()

    assert seen.decode() + out == f"Loading {'.' * 100} loaded\n"
    assert time.monotonic() - at > 2 + 11 * 0.25 - 0.2
    assert err.splitlines()[1:-1] == ["100%"]


def test_a_bar_moves_on_one_line_of_a_terminal(project: Any) -> None:
    project.write("main.py", BAR)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "main.py"], cwd=project.root, env=project.environment, stdin=subprocess.DEVNULL,
        stdout=theirs, stderr=theirs,
    ):  # fmt: skip
        os.close(theirs)
        screen = b""
        while True:
            try:
                screen += os.read(ours, 1 << 16)
            except OSError:  # The other end is closed.
                break
    os.close(ours)

    bar = screen.partition(b"loaded\r\n")[2].partition(b"\r\n")[0]
    assert bar.startswith(b"\r  0%")
    assert bar.endswith(b"\r100%")
    assert screen.count(b"Loading " + b"." * 100 + b" loaded\r\n") == 1


INTERRUPTED = """
import kinetic, signal, sys, threading, time

signal.signal(signal.SIGINT, signal.default_int_handler)

@kinetic.run(accelerator="cpu")
def train(way):
    if way != "thread":
        print("at work", flush=True)
        time.sleep(600)
    print("\\r 30%", end="", file=sys.stderr, flush=True)
    raise ValueError("no")

def main():
    train(way) if way != "handle" else train.run_async(way).result(stream_logs=True)

way = sys.argv[1]
if way == "thread":
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
else:
    main()
"""


@pytest.mark.parametrize("way", ["call", "handle", "thread"])
def test_a_traceback_has_the_users_frames_only_also_of_a_thread_and_after_ctrl_c(
    project: Any, way: str
) -> None:
    project.write("main.py", INTERRUPTED)
    process = project.start("main.py", way)
    if way != "thread":
        assert process.stdout.readline() == "at work\n"
        process.send_signal(signal.SIGINT)
    _, err = process.communicate()

    assert str(project.root / "main.py") in err
    assert err.rstrip().endswith("KeyboardInterrupt") or "ValueError: no\nRemote traceback" in err
    assert "site-packages/kinetic" not in err
    assert "/src/kinetic/" not in err
    assert err.count("ValueError: no") == (2 if way == "thread" else 0)
    assert "threading.py" not in err or way == "thread"
    for job in json.loads(project.cli("jobs", "list", "--json").stdout):
        assert job["job_id"] in err or way == "handle"
        project.cli("jobs", "cancel", job["job_id"])


# Lines that come more than half a second apart are not joined, so the hosts wait for each other.
HOSTS = """
import kinetic, os, pathlib, sys, time

@kinetic.run(accelerator="tpu-v4-8", backend="local-gke")
def steps():
    host = os.environ["KINETIC_HOST_INDEX"]
    outputs = pathlib.Path(os.environ["KINETIC_OUTPUT_DIR"])
    for step in range(3):
        (outputs / f"{step}-{host}").touch()
        while len([*outputs.glob(f"{step}-*")]) < 2:
            time.sleep(0.01)
        print("step", step, flush=True)
        print("rank", host, flush=True)
        time.sleep(0.3)
    print("same text", file=sys.stderr if host == "1" else sys.stdout)

if sys.argv[1] == "call":
    steps()
else:
    job = steps.run_async()
    print(job.job_id, flush=True)
    job.logs(follow=True)
"""


def test_a_line_that_all_hosts_print_is_shown_once_live_and_in_the_stored_log(project: Any) -> None:
    project.write("main.py", HOSTS)
    called, followed = project.run("main.py", "call"), project.run("main.py", "follow")
    job_id, *lines = followed.stdout.splitlines()
    logs = ["jobs", "logs", job_id]
    read, live = project.cli(*logs), project.cli(*logs, "--follow")
    every = project.cli(*logs, "--all-hosts").stdout.splitlines()

    for seen in (
        called.stdout.splitlines(),
        lines,
        read.stdout.splitlines(),
        live.stdout.splitlines(),
    ):
        for host in (0, 1):
            of_host = [line for line in seen if not line.startswith(f"[host {1 - host}]")]
            assert of_host[:6:2] == [f"[2 hosts] step {n}" for n in range(3)]
            assert of_host[1:6:2] == [f"[host {host}] rank {host}"] * 3
        assert "[host 0] same text" in seen
    assert all("[host 1] same text\n" in each.stderr for each in (called, followed, read, live))
    assert sum(line.endswith("step 1") for line in every) == 2


SIZES = """
import kinetic, os, pathlib

pathlib.Path("big.bin").write_bytes(os.urandom(6 << 20))
pathlib.Path("../data.bin").write_bytes(os.urandom(6 << 20))

@kinetic.run(accelerator="cpu")
def sizes(data):
    return os.urandom(20 << 20), os.path.getsize(data)

sizes(kinetic.Data("../data.bin"))
"""


def test_a_call_with_megabytes_in_a_folder_prints_two_lines_in_a_file(project: Any) -> None:
    project.write("main.py", SIZES)
    ran = project.run("main.py")

    assert [line.split()[:2] for line in ran.stderr.splitlines()] == [
        ["kinetic:", "submitted"], ["kinetic:", "done"],
    ]  # fmt: skip
    assert (ran.stdout, ran.returncode) == ("", 0)
