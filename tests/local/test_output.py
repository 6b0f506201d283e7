"""What functions print, and what they leave running, through real jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from kinetic.testing import eventually

PRELUDE = """
import json, os, subprocess, sys, threading, time
import kinetic

CASES = {}

def case(function):
    CASES[function.__name__] = kinetic.run(accelerator="cpu")(function)
    return CASES[function.__name__]

def main():
    jobs = {name: function.run_async() for name, function in CASES.items()}
    ends = {}
    for name, job in jobs.items():
        followed = [line.text for line in job.log_lines(follow=True)]
        try:
            value = job.result(timeout=100, cleanup=False)
        except Exception as error:
            value = repr(error)
        log = job.logs()
        job.cleanup()
        assert job.logs() == log
        ends[name] = {"value": value, "log": log, "followed": followed}
    print(json.dumps(ends))
"""
MAIN = """
if __name__ == "__main__":
    main()
"""


def ends(project: Any, cases: str) -> dict[str, dict[str, Any]]:
    printed = project.script(PRELUDE + cases + MAIN)
    found: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return found


def test_every_way_to_write_reaches_the_log_and_its_followers_whole(project) -> None:
    said = ends(
        project,
        r"""
@case
def many():
    for number in range(100_000): print(number)
@case
def binary(): sys.stdout.buffer.write(bytes(range(256)) + b"\n")
@case
def no_end(): sys.stdout.write("no newline")
@case
def no_end_and_an_error():
    sys.stdout.write("no newline"); raise ValueError("after it")
@case
def logging_module():
    import logging
    logging.basicConfig(level=logging.INFO)
    logging.info("[info] hello [/x]")
@case
def bar():
    for i in range(5): print(f"\r{i * 25}%", end="", flush=True)
    print()
@case
def below_python():
    import ctypes
    ctypes.CDLL(None).puts(b"from C"); print("from Python"); os.write(1, b"from the system\n")
@case
def from_a_child(): subprocess.run("echo out; echo err >&2", shell=True)
@case
def one_long_line(): print("x" * 3_000_000)
@case
def unicode(): print("é✓😀 \u2028 \x85 \x0c", "a\udcff".encode(errors="surrogateescape"))
""",
    )

    many = said["many"]["followed"]
    assert many == [str(number) for number in range(100_000)]
    assert said["many"]["log"].splitlines() == many
    assert said["binary"]["log"].startswith("\x00\x01")
    assert said["no_end"]["log"] == "no newline\n"
    assert said["no_end"]["followed"] == ["no newline"]
    assert said["no_end_and_an_error"]["log"].endswith("ValueError: after it\n")
    assert said["logging_module"]["log"] == "INFO:root:[info] hello [/x]\n"
    assert said["bar"]["log"] == "\r0%\r25%\r50%\r75%\r100%\n"
    assert said["below_python"]["log"] == "from C\nfrom Python\nfrom the system\n"
    assert said["from_a_child"]["log"] == "out\nerr\n"
    assert "".join(said["one_long_line"]["followed"]) == "x" * 3_000_000
    assert said["unicode"]["followed"][0].startswith("é✓😀 \u2028 \x85 \x0c")


def test_a_terminal_that_cannot_show_a_character_sees_an_escape(project) -> None:
    printed = project.script(
        """
        import kinetic

        @kinetic.run(accelerator="cpu")
        def work():
            print("é")

        if __name__ == "__main__":
            job = work.run_async()
            job.logs(follow=True)
            job.result(stream_logs=True)
            work()
    """,
        PYTHONIOENCODING="ascii",
    )

    assert printed == "\\xe9\n" * 3


def test_streams_that_user_code_closed_or_took_away_cost_nothing(project) -> None:
    said = ends(
        project,
        """
@case
def closed(): sys.stdout.close(); return 1
@case
def closed_and_an_error(): sys.stdout.close(); sys.stderr.close(); raise ValueError("x")
@case
def descriptors_closed(): os.close(1); os.close(2); return 1
@case
def taken_away(): sys.stdout = sys.stderr = None; return 1
@case
def reads_input(): return input("? ")
@case
def environment_cleared(): os.environ.clear(); return 1
@case
def folder_removed():
    import shutil
    here = os.getcwd(); os.chdir("/"); shutil.rmtree(here); return 1
""",
    )

    assert {name: end["value"] for name, end in said.items()} == {
        "closed": 1,
        "closed_and_an_error": "ValueError('x')",
        "descriptors_closed": 1,
        "taken_away": 1,
        "reads_input": "EOFError('EOF when reading a line')",
        "environment_cleared": 1,
        "folder_removed": 1,
    }


def test_what_a_function_leaves_running_neither_holds_up_its_end_nor_survives_it(
    project,
) -> None:
    said = ends(
        project,
        """
DAEMON = '''
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
with open("pid", "w") as stream: stream.write(str(os.getpid()))
time.sleep(300)
'''
@case
def thread():
    threading.Thread(target=time.sleep, args=[300]).start(); return os.getpid()
@case
def child(): return subprocess.Popen(["sleep", "300"]).pid
@case
def daemon():
    subprocess.run([sys.executable, "-c", DAEMON])
    while not os.path.exists("pid") or not open("pid").read(): time.sleep(0.01)
    return int(open("pid").read())
@case
def chatterbox():
    code = "while True: print('spam', flush=True)"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid
@case
def fork():
    if os.fork() == 0: return -1
    os.wait(); return os.getpid()
@case
def pool():
    import multiprocessing
    pool = multiprocessing.get_context("fork").Pool(2)
    return pool.map(abs, [-1, -2])
""",
    )

    assert said.pop("pool")["value"] == [1, 2]
    assert all(end["value"] > 0 for end in said.values()), said
    assert not any("exit handlers took more than" in end["log"] for end in said.values())
    eventually(lambda: not any(psutil.pid_exists(end["value"]) for end in said.values()))


BLOCKING = """
import kinetic, pathlib, sys

@kinetic.run(accelerator="cpu")
def work():
    for number in range(2000):
        print("line", number)
    return 42

if __name__ == "__main__":
    value = work()
    pathlib.Path("value").write_text(str(value))
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("streams", "encoding"),
    [
        ("2> /dev/full", "utf-8"),
        ("> /dev/full", "utf-8"),
        ("> /dev/full 2>&1", "utf-8"),
        (">&-", "utf-8"),
        ("2>&-", "utf-8"),
        ("2>&1 | true", "utf-8"),
        ("2>&1", "latin-1:strict"),
    ],
)
def test_a_value_comes_home_also_where_nobody_hears_of_the_job(
    project, streams: str, encoding: str
) -> None:
    project.write("wörk.py", BLOCKING)

    subprocess.run(
        ["sh", "-c", f"{sys.executable} wörk.py {streams}"],
        cwd=project.root,
        env={**project.environment, "PYTHONIOENCODING": encoding},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    assert (project.root / "value").read_text() == "42"
