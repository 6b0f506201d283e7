"""Process trees: start, find, kill and reap them.

On Linux everything needed is in `/proc`. On macOS `ps` prints it, which takes longer.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # Importing `signal`, which wraps it, takes 4 ms.
import os
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:  # Supervisors import this module, and `typing` takes longer than the rest of it.
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

KILL_SECONDS = 5.0
_ROUNDS = 50
"""The least number of rounds, however long one takes: the children of a killed process need another round."""
_SIGKILL = 9
_DEFAULT_SIGNALS = _signal.valid_signals() - {_SIGKILL, _signal.SIGSTOP}
"""Signals that have their default action in a started process, even if this process ignores them."""
_EXEC_SECONDS = 1.0
"""How long all processes together that execute a new program are waited for, if their environment is needed."""
_KERNEL_THREAD = 0x200000
"""The flag `PF_KTHREAD`: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"""
_LINUX = sys.platform == "linux"


class Process:
    """A process that has not ended. Its id and its start time together are never used again."""

    __slots__ = ("parent", "started")

    def __init__(self, parent: int, started: bytes) -> None:
        self.parent = parent
        self.started = started
        """The start time, as the system writes it."""


# Start.


def spawn(
    command: list[str],
    environment: Mapping[str, str],
    files: Iterable[int],
    *,
    makes_session: bool = False,
) -> int:
    """Start *command* in a session of its own, with *files* as its first descriptors; return its id.

    Some systems cannot start a process in a new session. There, a command that *makes_session* by itself is
    started as it is, and any other command gets a process group of its own.
    """
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(files)]

    def start(**group: Any) -> int:
        return os.posix_spawn(
            command[0], command, environment, file_actions=actions,
            setsigdef=_DEFAULT_SIGNALS, setsigmask=(), **group,
        )  # fmt: skip

    try:
        return start(setsid=True)
    except NotImplementedError:
        # A Python that was built for glibc before 2.26, or macOS before 10.15.
        return start() if makes_session else start(setpgroup=0)


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent ends; return whether this succeeded."""
    if os.getpid() == 1:
        return True
    if not _LINUX:
        return False
    try:
        import ctypes

        set_child_subreaper = 36
        return bool(ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


# Find.


def living_processes() -> dict[int, Process]:
    """Return all processes of this machine that have not ended, by their ids. Zombies have ended."""
    if not _LINUX:
        return _listed(_ps("-axww", "-o", "pid=,ppid=,state=,lstart="))
    found = ((pid, _process(pid)) for pid in _pids())
    return {pid: process for pid, process in found if process is not None}


def descendants_of(roots: Iterable[int], processes: Mapping[int, Process]) -> list[int]:
    """Return those of *processes* that descend from *roots*."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: list[int] = []
    todo = list(roots)
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += below
    return found


def tree_of(root: int) -> list[int]:
    """Return process *root* and its descendants. Where the kernel lists children, others cost nothing."""
    if not os.path.exists("/proc/thread-self/children"):  # noqa: PTH110 - light
        return [root, *descendants_of([root], living_processes())]
    found = [root]
    for pid in found:  # It grows.
        try:
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - light
        except OSError:
            continue  # It has ended.
        for thread in threads:
            found += map(int, _proc(pid, f"task/{thread}/children").split())
    return found


def still_living(
    recorded: Mapping[int, Process], processes: Mapping[int, Process]
) -> dict[int, Process]:
    """Return those *recorded* earlier that are among *processes* now: another process may have the same id."""
    return {
        pid: processes[pid]
        for pid, process in recorded.items()
        if pid in processes and processes[pid].started == process.started
    }


def has_children(pid: int) -> bool:
    """Return whether process *pid*, which is not reaped yet, has a child that has not ended."""
    processes = living_processes()
    # No processes at all means that the system did not list them: assume that there is a child.
    return not processes or any(process.parent == pid for process in processes.values())


def marked(mark: str) -> list[int]:
    """Return the other living processes with *mark* (`NAME=value`) in their environment."""
    wanted = os.fsencode(mark)
    if _LINUX:
        until = monotonic() + _EXEC_SECONDS
        found = [pid for pid in _pids() if wanted in _settled_environment(pid, until)]
    else:
        commands = _ps("-axww", "-o", "pid=,command=")
        found = _marked(commands, _ps("-axwwE", "-o", "pid=,command="), wanted)
    return [pid for pid in found if pid != os.getpid()]


def command_lines(pids: Sequence[int]) -> dict[int, bytes]:
    """Return the command lines of processes, by id; empty for a process that is just being started."""
    if not pids:
        return {}
    if _LINUX:
        return {pid: _proc(pid, "cmdline") for pid in pids}
    listed = _ps("-ww", "-o", "pid=,command=", "-p", ",".join(map(str, pids)))
    return {pid: command for pid, (command,) in _fields(listed, 2)}


def usage_of(pids: Iterable[int]) -> tuple[float, int]:
    """Return the seconds of processor time that *pids* and their reaped children took, and the bytes they hold."""
    seconds, memory = 0.0, 0
    if _LINUX:
        for pid in pids:
            # https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html, from its field 3 on.
            fields = _proc(pid, "stat").rpartition(b") ")[2].split()
            if len(fields) > 21:
                seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        return seconds, memory
    for _, (size, time) in _fields(
        _ps("-ww", "-o", "pid=,rss=,time=", "-p", ",".join(map(str, pids))), 3
    ):
        memory += int(size) * 1024
        # [[DD-]HH:]MM:SS
        parts = reversed(time.replace(b"-", b":").split(b":"))
        seconds += sum(
            float(part) * unit for part, unit in zip(parts, (1, 60, 3600, 86400), strict=False)
        )
    return seconds, memory


# Kill.


def kill_tree(
    kill: Callable[[], bool], *, pause: Callable[[], object], seconds: float = KILL_SECONDS
) -> None:
    """Call *kill* until it returns that nothing was left to kill; call *pause* in between.

    The next call finds the children of a killed process. Give up when *seconds* have passed and *kill* was
    called fifty times.
    """
    until = monotonic() + seconds
    rounds = 1
    while not kill():
        if rounds >= _ROUNDS and monotonic() >= until:
            return
        rounds += 1
        pause()


def kill_children(but: int = 0) -> bool:
    """Kill the children of this process, except *but*; return whether none lived."""
    me, living = os.getpid(), living_processes()
    found = [pid for pid, process in living.items() if process.parent == me and pid != but]
    for pid in found:
        kill(pid)  # An id is not used again before this process reaps the child.
    return not found


def kill_marked(mark: str) -> bool:
    """Kill the processes that `marked` finds; return whether there were none."""
    found = marked(mark)
    for pid in found:
        kill(pid, lambda pid: os.fsencode(mark) in _environment(pid))
    return not found


def kill_recorded(recorded: Mapping[int, Process]) -> bool:
    """Kill those processes of an earlier `living_processes` that still live; return whether there were none."""
    living = still_living(recorded, living_processes())

    def is_recorded(pid: int) -> bool:
        process = _process(pid)
        return process is not None and process.started == living[pid].started

    for pid in living:
        kill(pid, is_recorded)
    return not living


def kill(pid: int, is_meant: Callable[[int], bool] = lambda _: True) -> None:
    """Kill process *pid*. Ids are used again, so *is_meant* checks that it is still the same process.

    This is checked on Linux only. Elsewhere ids come from a list that was made a moment ago.
    """
    try:
        if hasattr(os, "pidfd_open"):
            fd = os.pidfd_open(pid)
            try:
                if is_meant(pid):
                    _signal.pidfd_send_signal(fd, _SIGKILL)
            finally:
                os.close(fd)
            return
    except ProcessLookupError:
        return
    except OSError:
        pass  # The kernel is old, or a sandbox forbids it.
    try:
        if not _LINUX or is_meant(pid):
            os.kill(pid, _SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def signal_group(group: int, number: int = _SIGKILL) -> bool:
    """Send the signal *number* to a process group; return whether the group exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # macOS raises this for a group of zombies.
    return True


# Reap.


def reap(before: Callable[[int], object] | None = None) -> tuple[dict[int, int], bool]:
    """Reap all children that have ended; return their wait statuses by id, and whether any child is left.

    *before* is called with the id of each ended child while the id is still its own. On macOS before
    Python 3.13, which has no `os.waitid`, it is not called.
    """
    statuses: dict[int, int] = {}
    while True:
        try:
            ended = -1  # Any child.
            if before is not None and hasattr(os, "waitid"):
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return statuses, True
                ended = found.si_pid
                before(ended)
            pid, status = os.waitpid(ended, os.WNOHANG)
        except ChildProcessError:
            return statuses, False
        if pid == 0:
            return statuses, True
        statuses[pid] = status


# Linux.


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - light


def _stat(pid: int) -> list[bytes]:
    """Return the fields of a process after its name; none if it has ended."""
    # The command's name may contain parentheses: the fields begin after the last one.
    fields = _proc(pid, "stat").rpartition(b")")[2].split()
    return [] if len(fields) < 20 or fields[0] in (b"Z", b"X") else fields


def _process(pid: int) -> Process | None:
    fields = _stat(pid)
    return Process(int(fields[1]), fields[19]) if fields else None


def _environment(pid: int) -> list[bytes]:
    return _proc(pid, "environ").split(b"\0")


def _settled_environment(pid: int, until: float) -> list[bytes]:
    """Return the environment of a process. One that executes a new program has none for a moment: wait for it."""
    while (found := _environment(pid)) == [b""] and monotonic() < until:
        fields = _stat(pid)
        if not fields or int(fields[6]) & _KERNEL_THREAD or _proc(pid, "cmdline"):
            return _environment(pid)  # It may have executed one, until now.
        os.sched_yield()
    return found


def _proc(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as stream:  # noqa: PTH123 - light
            return stream.read()
    except OSError:
        return b""  # The process has ended, or belongs to another user.


# macOS.


def _ps(*options: str) -> bytes:
    import subprocess

    # UTC, so that a start time stays the same text when a laptop changes its time zone.
    environment = {"LC_ALL": "C", "TZ": "UTC0"}
    command = ["/bin/ps", *options]
    try:
        return subprocess.run(command, env=environment, capture_output=True, check=False).stdout
    except OSError:
        # The limit of processes is reached, or a sandbox forbids `ps`: nothing is known.
        return b""


def _fields(listed: bytes, count: int) -> list[tuple[int, list[bytes]]]:
    """Split each line of what `ps` prints into a process id and *count* - 1 more fields."""
    lines = (line.strip().split(None, count - 1) for line in listed.splitlines())
    return [(int(pid), fields) for pid, *fields in lines if len(fields) == count - 1]


def _listed(listed: bytes) -> dict[int, Process]:
    return {
        pid: Process(int(parent), started)
        for pid, (parent, state, started) in _fields(listed, 4)
        if not state.startswith(b"Z")
    }


def _marked(commands: bytes, with_environments: bytes, mark: bytes) -> list[int]:
    """Find *mark* in the environments that `ps -E` prints after commands, not in the commands themselves."""
    bare = {pid: command for pid, (command,) in _fields(commands, 2)}
    return [
        pid
        for pid, (text,) in _fields(with_environments, 2)
        if mark in text.removeprefix(bare.get(pid, b"")).split()
    ]
