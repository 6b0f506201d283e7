"""The process of the user's code: start, signal and reap it, and whatever it leaves behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence

# This module is imported before the child starts, so it imports nothing that takes time: while the
# parent goes on importing and claims its attempt, the child already does the same.

MARK = "KINETIC_RUNNER_MARK"
"""A variable by which every descendant can be told, wherever it went."""

_READ_SIZE = 256 * 1024


class Child:
    """A running child: one pipe for its output, one for its reports, one for its task, one to stop it.

    `status` is what `waitpid` said, or None while it lives. The task's pipe stays open: the child
    takes its end for the parent's death.
    """

    def __init__(
        self, pid: int, output: int, report: int, task: int, stop: tuple[int, int], mark: str
    ) -> None:
        self.pid = pid
        self.output = output
        self.report = report
        self.task = task
        self.stop_fd, self._stop = stop
        """The number that the child knows its end of the pipe by; ours."""
        self.mark = mark
        self.status: int | None = None
        self.reaper = False
        self.supervised = False
        """Whether a supervisor searches all processes for what is left."""
        self._group_gone = False
        self._childless = False

    def send_task(self, text: str) -> None:
        """Hand the task over; the child begins."""
        # A few hundred bytes into an empty pipe: this never blocks.
        try:
            os.write(self.task, text.encode() + b"\n")
        except BrokenPipeError:
            return  # It died already; whoever reaps it will say so.

    def keep_orphans(self) -> None:
        """Become the parent of orphaned descendants, where the system can do that."""
        self.reaper = os.getpid() == 1 or _become_subreaper()

    def signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        if self.status is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def request_stop(self) -> None:
        """Have Python's handler of SIGTERM called, where native code has taken the signal."""
        if self.status is None:
            try:  # noqa: SIM105 - light
                os.write(self._stop, b".")
            except OSError:
                pass  # It ended, closed the pipe, or has been asked a thousand times.
            self.signal(signal.SIGURG)  # Ignored by whoever does not handle it.

    def reap(self) -> bool:
        """Collect whatever ended; return whether the child is among it, now or earlier."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return self.status is not None
            if pid == 0:
                return self.status is not None
            if pid == self.pid:
                self.status = status

    def kill(self) -> None:
        """Kill the child and its process group, at once."""
        if self.status is None:
            self.signal(signal.SIGKILL)
        # A number stays taken for as long as a group of that number has members. Once it had none
        # it may become a stranger's, so it is not used again.
        if not self._group_gone:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._group_gone = True
            except PermissionError:
                return  # macOS says this of a group of zombies.

    def kill_all_but_trackers(self) -> bool:
        """Kill what resource trackers wait for; one round. Return whether no tracker was left.

        `multiprocessing` and `loky` start a process that removes shared memory, semaphores and
        folders which their users left, once nobody holds its pipe any more. It ends by itself.
        """
        self.signal(signal.SIGKILL)
        self.reap()
        if self.reaper and self._childless:
            return True
        found = _descendants_of_this() if self.reaper else self._marked_group()
        trackers = _trackers_among(found)
        if trackers:
            for pid in set(found) - trackers:
                _kill(pid)
        return not trackers

    def _marked_group(self) -> list[int]:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return []  # Looking at all processes takes a while.
        except PermissionError:
            pass  # macOS says this of a group of zombies.
        return _marked(self.mark)

    def kill_descendants(self) -> bool:
        """Kill what left the group as well; one round. Return whether nothing was left.

        Killing a process hands its children to us, so it takes several rounds to reach all. Where it
        does not, all processes are searched; a supervisor does that once our report is written.
        """
        self.kill()
        self.reap()
        if self.reaper and self._childless:
            return True
        if self.reaper:
            found = _children_of_this()
        elif self.supervised:
            found = []
        else:
            found = _marked(self.mark)
        for pid in found:
            _kill(pid)
        self.reap()
        return not found and self.status is not None


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start `command TASK_FD REPORT_FD` in a session of its own, without input."""
    output, output_end = os.pipe()
    report, report_end = os.pipe()
    task_end, task = os.pipe()
    stop_end, stop = os.pipe()
    for mine in (output, report, stop):
        os.set_blocking(mine, False)
    for theirs in (task_end, report_end, stop_end):
        os.set_inheritable(theirs, True)
    null = os.open(os.devnull, os.O_RDONLY)
    mark = f"{os.getpid()}-{os.urandom(8).hex()}"
    actions = [
        (os.POSIX_SPAWN_DUP2, null, 0),
        (os.POSIX_SPAWN_DUP2, output_end, 1),
        (os.POSIX_SPAWN_DUP2, output_end, 2),
    ]
    argv = [*command, str(task_end), str(report_end)]
    # Someone who started us may have ignored or blocked what the user's code wants to hear.
    fresh = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    try:
        try:
            pid = os.posix_spawn(
                argv[0], argv, {**environment, MARK: mark}, file_actions=actions,
                setsid=True, setsigdef=fresh, setsigmask=[],
            )  # fmt: skip
        except NotImplementedError:  # The child makes its session itself: `inner`.
            pid = os.posix_spawn(
                argv[0], argv, {**environment, MARK: mark}, file_actions=actions,
                setsigdef=fresh, setsigmask=[],
            )  # fmt: skip
    finally:
        for theirs in (null, output_end, report_end, task_end, stop_end):
            os.close(theirs)
    return Child(pid, output, report, task, (stop_end, stop), mark)


def read_available(fd: int) -> bytes | None:
    """Return what is in a non-blocking pipe: b"" at its end, None where nothing is there now."""
    try:
        return os.read(fd, _READ_SIZE)
    except BlockingIOError:
        return None


def pipe_capacity(fd: int) -> int:
    """Return how many bytes can lie in a pipe."""
    import fcntl

    number = getattr(fcntl, "F_GETPIPE_SZ", None)  # Linux only; elsewhere 64 KiB is the most.
    if number is None:
        return 64 * 1024
    try:
        return fcntl.fcntl(fd, number)
    except OSError:
        return 64 * 1024


def _become_subreaper() -> bool:
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        set_child_subreaper = 36
        return bool(ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _descendants_of_this() -> list[int]:
    children: dict[int | None, list[int]] = {}
    for pid in _processes():
        children.setdefault(_parent_of(pid), []).append(pid)
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _trackers_among(pids: Sequence[int]) -> set[int]:
    """Tell resource trackers by the code that Python was started with (`-c`).

    What has no command line is just being started, and may become one.
    """
    if not pids:
        return set()
    import re

    starts = re.compile(rb"-c[\0 ]from [\w.]*\bresource_tracker import main; *main\(")
    if sys.platform == "linux":
        lines = {pid: _read(f"/proc/{pid}/cmdline") for pid in pids}
        return {pid for pid, line in lines.items() if not line or starts.search(line)}
    else:  # noqa: RET505  # mypy looks at one system at a time
        import subprocess

        command = ["/bin/ps", "-ww", "-o", "pid=,command=", "-p", ",".join(map(str, pids))]
        listed = subprocess.run(command, capture_output=True, check=False).stdout
        return {int(line.split(None, 1)[0]) for line in listed.splitlines() if starts.search(line)}


def _children_of_this() -> list[int]:
    me = os.getpid()
    return [pid for pid in _processes() if _parent_of(pid) == me]


def _processes() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _parent_of(pid: int) -> int | None:
    # The command's name may hold anything, also parentheses: fields begin after the last.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields[:1] not in ([], [b"Z"]) else None


def _marked(mark: str) -> list[int]:
    """Find living processes by the variable they inherited."""
    wanted = f"{MARK}={mark}".encode()
    if sys.platform == "linux":
        me = os.getpid()
        return [
            pid for pid in _processes() if pid != me and wanted in _read(f"/proc/{pid}/environ")
        ]
    else:  # noqa: RET505  # mypy looks at one system at a time
        import subprocess

        # macOS shows the environment of one's own processes behind their command.
        command = ["/bin/ps", "-axwwE", "-o", "pid=,command="]
        listed = subprocess.run(command, capture_output=True, check=False).stdout
        return [int(line.split(None, 1)[0]) for line in listed.splitlines() if wanted in line]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:  # noqa: PTH123  # pathlib is too slow to import here
            return stream.read()
    except OSError:
        return b""  # The process ended, or is somebody else's.
