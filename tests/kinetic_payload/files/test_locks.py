from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from kinetic_payload.files.locks import locked


def test_two_paths_of_a_file_are_one_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    waits, let_go = threading.Event(), threading.Event()
    order: list[str] = []

    def second() -> None:
        with locked(f"{tmp_path}/link/lock", waiting=waits.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(f"{tmp_path}/real/lock", waiting=let_go.set):
        thread.start()
        assert waits.wait(100)
        order.append("first")
    thread.join()

    assert order == ["first", "second"]
    assert not let_go.is_set()


HOLD_ONE_AND_WAIT_FOR_THE_OTHER = """
import sys, threading
from kinetic_payload.files.locks import locked

own, other = sys.argv[1:]
release = threading.Event()

def hold():
    with locked(own):
        print("holds", flush=True)
        release.wait()

def wait():
    with locked(other, waiting=lambda: print("waits", flush=True)):
        print("has it", flush=True)

threading.Thread(target=hold).start()
sys.stdin.readline()
threading.Thread(target=wait).start()
sys.stdin.readline()
release.set()
"""


def test_two_processes_whose_threads_wait_for_each_others_locks_get_them(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD_ONE_AND_WAIT_FOR_THE_OTHER, own, other],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for own, other in (paths, paths[::-1])
    ]

    for said in ("holds", "waits"):
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == f"{said}\n"
            if said == "waits":
                threading.Event().wait(0.2)  # Until the kernel has seen that it waits.
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            if said == "holds":
                child.stdin.flush()
    assert [child.communicate()[0] for child in children] == ["has it\n", "has it\n"]
