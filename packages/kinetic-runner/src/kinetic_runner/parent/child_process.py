"""Start, signal and reap the child, which runs the user's code; kill the processes that it leaves behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from kinetic_payload import processes

# This module is imported before the child starts, so it imports nothing slow. The rest of the parent is
# imported while the child imports its own modules.

MARK = "KINETIC_RUNNER_MARK"
"""A variable in the environment of every descendant, by which it is found."""

_READ_SIZE = 256 * 1024


def new_mark() -> str:
    """Return a value of `MARK` that no other process has."""
    return f"{os.getpid()}-{os.urandom(8).hex()}"


class Child:
    """A running child: two pipes for its output, one for its reports, one for its task, one to stop it.

    `status` is its wait status, or None while it runs. The task's pipe stays open: when it closes, the
    child knows that its parent has ended.
    """

    def __init__(
        self,
        pid: int,
        output: int,
        errors: int,
        report: int,
        task: int,
        stop: tuple[int, int],
        mark: str,
    ) -> None:
        self.pid = pid
        self.output = output
        self.errors = errors
        self.report = report
        self.task = task
        self.stop_fd, self._stop = stop
        """The descriptor, in the child, of its end of the pipe; in this process, of the other end."""
        self.mark = mark
        self.status: int | None = None
        self.adopting = False
        """Whether orphaned descendants become children of this process."""
        self.template = 0
        """The id of the process that this one was forked from, which stays; 0 without one."""
        self.supervised = False
        """Whether a supervisor searches all processes for remaining descendants."""
        self._group_left = True
        self._children_left = True

    def send_task(self, text: str) -> None:
        """Send the task, for which the child waits."""
        # A few hundred bytes into an empty pipe: this never blocks.
        try:
            os.write(self.task, text.encode() + b"\n")
        except BrokenPipeError:
            return  # The child has already ended; `reap` notices that.

    def adopt_orphans(self) -> None:
        """Become the parent of orphaned descendants, where the system can do that."""
        self.adopting = processes.adopt_orphans()

    def signal(self, number: int) -> None:
        """Send a signal to the child alone."""
        if self.status is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def request_stop(self) -> None:
        """Make the child call Python's handler of SIGTERM, where native code handles the signal."""
        if self.status is None:
            try:  # noqa: SIM105 - light
                os.write(self._stop, b".")
            except OSError:
                pass  # The child ended or closed the pipe, or the pipe is full of requests.
            self.signal(signal.SIGURG)  # Processes ignore it by default.

    def reap(self) -> bool:
        """Reap all processes that have ended; return whether the child has ended, now or earlier."""
        statuses, self._children_left = processes.reap()
        self.status = statuses.get(self.pid, self.status)
        return self.status is not None

    def kill(self) -> None:
        """Kill the child and its process group, at once."""
        self.signal(signal.SIGKILL)
        # The number of a process group is reserved while the group has members. After that, another group
        # may get it, so do not signal it again.
        self._group_left = self._group_left and processes.signal_group(self.pid)

    def kill_all_but_trackers(self) -> bool:
        """Kill, in one round, what resource trackers wait for. Return whether no tracker was left.

        A resource tracker is a process that `multiprocessing` or `loky` starts. It removes abandoned shared
        memory, semaphores and folders once no other process holds its pipe. Then it ends by itself.
        """
        self.signal(signal.SIGKILL)
        self.reap()
        if self.adopting and not self._children_left:
            return True
        if self.adopting:
            living = processes.living_processes()
            found = processes.descendants_of([os.getpid()], living)
            found = [pid for pid in found if pid != self.template]
        elif processes.signal_group(self.pid, 0):
            found = processes.marked(f"{MARK}={self.mark}")
        else:
            found = []  # Searching all processes would take a while.
        trackers = _trackers_among(found)
        if trackers:
            for pid in set(found) - trackers:
                processes.kill(pid)
        return not trackers

    def kill_descendants(self) -> bool:
        """Kill, in one round, also descendants outside the process group. Return whether none was left.

        Where this process adopts orphans, the children of a killed process become its own, so it takes several
        rounds to reach all. Elsewhere all processes are searched. A supervisor, if there is one, does
        that once the report is written.
        """
        self.kill()
        self.reap()
        if self.adopting:
            if not self._children_left:
                return True
            none_left = processes.kill_children(but=self.template)
        else:
            none_left = self.supervised or processes.kill_marked(f"{MARK}={self.mark}")
        self.reap()
        return none_left and self.status is not None

    def close(self) -> None:
        """Close the pipes of a child that has ended: a worker of a batch starts many."""
        for fd in (self.output, self.errors, self.report, self.task, self._stop):
            os.close(fd)


def fork(command: Sequence[str], inherited: Sequence[int]) -> Child | list[str]:
    """Fork a child, as if `spawn` had started *command*; in the child, return its arguments.

    *inherited* are the descriptors of this process that it must not have.
    """
    arguments: list[str] = []

    def start(fds: Sequence[int], mark: str) -> tuple[int, int]:
        task, report, stop = kept = [os.dup(fds[number]) for number in (0, 1, 4)]
        pid = os.fork()
        if pid:
            for fd in kept:
                os.close(fd)
        else:
            os.setsid()
            os.dup2(fds[2], 1)
            os.dup2(fds[3], 2)
            os.environ[MARK] = mark  # noqa: TID251 - for its descendants
            arguments[:] = str(task), str(report)
            sys.orig_argv[1:] = *command[1:], *arguments
        return pid, stop

    child = started(start)
    if not arguments:
        return child
    child.close()  # The ends of the parent.
    for fd in inherited:
        os.close(fd)
    set_native_id()
    return arguments


def set_native_id() -> None:
    """Correct the main thread's id after a fork, as `multiprocessing` does: Python leaves the old one."""
    import threading

    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]  # noqa: SLF001


def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start `command TASK_FD REPORT_FD` in a session of its own, without input."""

    def start(fds: Sequence[int], mark: str) -> tuple[int, int]:
        task, report, output, errors, stop = fds
        for fd in (task, report, stop):
            os.set_inheritable(fd, True)
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            pid = processes.spawn(
                [*command, str(task), str(report)],
                {**environment, MARK: mark},
                (null, output, errors),
                makes_session=True,  # `kinetic_runner.child.main` does.
            )
        finally:
            os.close(null)
        return pid, stop

    return started(start)


def started(start: Callable[[Sequence[int], str], tuple[int, int]]) -> Child:
    """Make the pipes of a child, and return it.

    *start* starts it with its ends of them (task, reports, output, errors, stop requests) and its mark; it returns its id, and
    the number that the last one has in it.
    """
    output, output_end = os.pipe()
    errors, errors_end = os.pipe()
    report, report_end = os.pipe()
    task_end, task = os.pipe()
    stop_end, stop = os.pipe()
    for fd in (output, errors, report, stop):
        os.set_blocking(fd, False)
    mark = new_mark()
    try:
        pid, stop_fd = start((task_end, report_end, output_end, errors_end, stop_end), mark)
    except BaseException:
        for fd in (output, errors, report, task, stop):
            os.close(fd)
        raise
    finally:
        for fd in (output_end, errors_end, report_end, task_end, stop_end):
            os.close(fd)
    return Child(pid, output, errors, report, task, (stop_fd, stop), mark)


def read_available(fd: int) -> bytes | None:
    """Return the data in a non-blocking pipe: b"" at its end, None if there is none now."""
    try:
        return os.read(fd, _READ_SIZE)
    except BlockingIOError:
        return None


def pipe_capacity(fd: int) -> int:
    """Return how many bytes a pipe can hold."""
    import fcntl

    # Linux only; elsewhere a pipe holds at most 64 KiB.
    number = getattr(fcntl, "F_GETPIPE_SZ", None)
    if number is None:
        return 64 * 1024
    try:
        return fcntl.fcntl(fd, number)
    except OSError:
        return 64 * 1024


def _trackers_among(pids: Sequence[int]) -> set[int]:
    """Return the resource trackers among *pids*, by the code that Python was started with (`-c`).

    A process without a command line is just being started, and may become a resource tracker.
    """
    lines = processes.command_lines(pids)
    if not lines:
        return set()
    import re

    starts = re.compile(rb"-c[\0 ]from [\w.]*\bresource_tracker import main; *main\(")
    return {pid for pid, line in lines.items() if not line or starts.search(line)}
