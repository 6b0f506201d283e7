from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kinetic_payload import processes
from kinetic_payload.processes import (
    Process,
    command_lines,
    descendants_of,
    has_children,
    kill_marked,
    kill_recorded,
    kill_tree,
    living_processes,
    marked,
    signal_group,
    spawn,
    still_living,
    tree_of,
)

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it is about /proc")
MARK = "KINETIC_TEST_MARK"


def eventually(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        threading.Event().wait(0.01)


@pytest.fixture
def start() -> Iterator[Callable[..., int]]:
    started = []

    def start_one(*command: str, **environment: str) -> int:
        null = os.open(os.devnull, os.O_RDWR)
        wanted = [*(command or ("/bin/sleep", "600"))]
        started.append(spawn(wanted, environment, (null, null, null)))
        os.close(null)
        return started[-1]

    yield start_one
    for pid in started:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def test_killing_a_tree_takes_as_many_rounds_as_needed_and_at_least_fifty() -> None:
    left, pauses, rounds = [True, False, False], [], []

    kill_tree(left.pop, pause=lambda: pauses.append("short"), seconds=0.0)
    kill_tree(lambda: bool(rounds.append("again")), pause=lambda: None, seconds=0.0)

    assert left == []
    assert pauses == ["short", "short"]
    assert len(rounds) == 50


def test_a_process_starts_in_its_own_session_and_ignores_no_signal(start) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pid = start()
    finally:
        signal.signal(signal.SIGINT, before)

    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGINT)
    assert os.waitpid(pid, 0)[1] == signal.SIGINT


def test_a_mark_is_a_whole_variable_and_not_the_start_of_one(start) -> None:
    mine = start(**{MARK: "one"})
    start(**{MARK: "one-more"})
    start(**{f"X{MARK}": "one"})
    start("/bin/sh", "-c", "sleep 600; : $0", f"{MARK}=one")

    eventually(lambda: marked(f"{MARK}=one"))
    assert marked(f"{MARK}=one") == [mine]


@LINUX
def test_a_process_that_executes_one_program_after_another_is_found(start, tmp_path) -> None:
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    pid = start(str(program), **{MARK: "busy"})
    eventually(lambda: marked(f"{MARK}=busy"))

    missed = sum(marked(f"{MARK}=busy") != [pid] for _ in range(200))

    # The second look may meet the next of these programs. Without one, 16 to 22 were missed.
    assert missed < 6


def test_marked_processes_are_killed_until_none_is_left(start) -> None:
    pid = start(**{MARK: "gone"})
    eventually(lambda: marked(f"{MARK}=gone"))

    assert not kill_marked(f"{MARK}=gone")
    os.waitpid(pid, 0)
    assert kill_marked(f"{MARK}=gone")


@LINUX
def test_a_process_whose_name_looks_like_fields_of_stat_is_read(start, tmp_path) -> None:
    program = tmp_path / ") Z 1"
    program.symlink_to("/bin/sleep")
    pid = start(str(program), "600")

    eventually(lambda: command_lines([pid])[pid].startswith(bytes(program)))
    assert living_processes()[pid].parent == os.getpid()


def test_descendants_are_found_below_their_parents(start) -> None:
    pid = start("/bin/sh", "-c", "sleep 600 & sleep 600")

    eventually(lambda: len(descendants_of([pid], living_processes())) == 2)
    assert has_children(pid)
    found = descendants_of([os.getpid()], living_processes())
    assert pid in found
    assert len(found) >= 3
    assert not has_children(found[-1])
    assert sorted(tree_of(pid)) == sorted([pid, *descendants_of([pid], living_processes())])
    signal_group(pid)


def test_another_process_with_a_recorded_id_is_spared(start) -> None:
    pid = start()
    now = living_processes()[pid]
    earlier = {pid: Process(now.parent, b"0")}

    assert still_living(earlier, living_processes()) == {}
    assert kill_recorded(earlier)
    processes.kill(pid, lambda _: False)
    assert pid in living_processes()

    assert not kill_recorded({pid: now})
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert kill_recorded({pid: now})


def test_a_process_is_killed_by_its_id_where_pidfds_are_refused(start, monkeypatch) -> None:
    def refused(_pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    pid = start()

    processes.kill(pid)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    processes.kill(pid)  # It is gone.


def test_a_zombie_is_not_listed_and_its_group_exists_until_it_is_reaped(start) -> None:
    pid = start("/bin/sh", "-c", "exit 3")
    eventually(lambda: pid not in living_processes())

    assert signal_group(pid)
    assert os.waitpid(pid, 0) == (pid, 3 << 8)
    assert not signal_group(pid)


REAPING = """
import os, signal, subprocess, sys, time
from kinetic_payload.processes import {names}
"""


def test_the_callback_of_reap_runs_before_the_id_is_free() -> None:
    script = """
ended = []
assert reap() == ({}, False)
# Without references to them, `subprocess` itself reaps what has ended.
started = [subprocess.Popen(command) for command in (["sh", "-c", "exit 3"], ["sleep", "600"])]
first, second = (process.pid for process in started)
statuses = {}
while not statuses:
    statuses, left = reap(lambda pid: ended.append((pid, os.kill(pid, 0))))
    time.sleep(0.01)
assert (statuses, left, ended) == ({first: 3 << 8}, True, [(first, None)]), (statuses, left, ended)
os.kill(second, 9)
while left:
    statuses, left = reap()
    time.sleep(0.01)
assert statuses == {second: 9}
"""
    subprocess.run([sys.executable, "-c", REAPING.format(names="reap") + script], check=True)


@LINUX
def test_orphans_are_adopted_and_killed_generation_by_generation() -> None:
    script = """
assert adopt_orphans()
left = subprocess.Popen(["sh", "-c", "setsid sh -c 'sleep 600 & setsid sleep 600' & exit 0"])
while not (found := descendants_of([os.getpid()], living_processes())) or len(found) < 3:
    reap()
    time.sleep(0.01)

def kill() -> bool:
    _, children_left = reap()
    return not children_left or kill_children()

kill_tree(kill, pause=lambda: time.sleep(0.01))
assert not set(found) & set(living_processes())
assert reap() == ({}, False)
"""
    names = "adopt_orphans, descendants_of, kill_children, kill_tree, living_processes, reap"
    subprocess.run([sys.executable, "-c", REAPING.format(names=names) + script], check=True)


@pytest.mark.skipif(not os.path.exists("/bin/ps"), reason="there is no ps")
def test_ps_lists_the_same_processes_as_proc(start) -> None:
    pid, ended = start(), start("/bin/sh", "-c", "exit 0")
    eventually(lambda: ended not in living_processes())

    listed = processes._listed(processes._ps("-axww", "-o", "pid=,ppid=,state=,lstart="))

    assert listed[pid].parent == os.getpid()
    assert ended not in listed


def test_ps_shows_environments_behind_commands_that_may_mention_the_mark() -> None:
    commands = b"  1 /sbin/launchd\n 20 grep A=b\n 30 sleep 600\n 31 sleep 600\n 40\n"
    shown = b"  1 /sbin/launchd\n 20 grep A=b HOME=/\n 30 sleep 600 A=b HOME=/\n 31 sleep 600 A=bc\n 41 new A=b\n"

    assert processes._marked(commands, shown, b"A=b") == [30, 41]
